package slog

import (
	"context"
	"log/slog"
	"os"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	slog.Info("charged", "order", "o-1")
	slog.New(slog.NewJSONHandler(os.Stdout, nil)).Warn("charged", "order", "o-2")
	return nil
}
