package pgx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	_, err := pgx.Connect(ctx, "postgres://ada@127.0.0.1:5432/orders")
	return err
}
