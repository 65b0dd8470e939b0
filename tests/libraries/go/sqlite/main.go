package main

import (
	"context"
	"database/sql"

	_ "github.com/mattn/go-sqlite3"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		return err
	}
	return db.PingContext(ctx)
}
