package decimal

import (
	"context"
	"fmt"

	"github.com/shopspring/decimal"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	if sum := decimal.RequireFromString("0.1").Add(decimal.RequireFromString("0.2")); sum.String() != "0.3" {
		return fmt.Errorf("got %s", sum)
	}
	return nil
}
