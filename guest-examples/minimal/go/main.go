package main

import (
	"context"
	"log/slog"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, body []byte) error {
	slog.Info("handled", "bytes", len(body))
	return nil
}
