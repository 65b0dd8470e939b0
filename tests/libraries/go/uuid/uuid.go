package uuid

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	seventh, err := uuid.NewV7()
	fmt.Println("drew", uuid.New(), seventh)
	return err
}
