package main

import (
	"context"

	"go.uber.org/zap"

	"hostler"
)

var logger, _ = zap.NewProduction()

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	logger.Info("charged", zap.String("order", "o-1"))
	return nil
}
