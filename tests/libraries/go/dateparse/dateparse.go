package dateparse

import (
	"context"
	"fmt"

	"github.com/araddon/dateparse"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	at, err := dateparse.ParseAny("oct 7, 2025, 3:04 pm")
	if err == nil && at.Unix() != 1759849440 {
		err = fmt.Errorf("got %v", at)
	}
	return err
}
