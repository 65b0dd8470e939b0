package ulid

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	fmt.Println("drew", ulid.Make())
	return nil
}
