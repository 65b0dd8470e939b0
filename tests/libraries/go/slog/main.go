package main

import (
	"context"
	"log/slog"
	"os"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	slog.Info("charged", "order", "o-1")
	slog.New(slog.NewJSONHandler(os.Stdout, nil)).Warn("charged", "order", "o-2")
	return nil
}
