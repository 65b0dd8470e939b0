package zap

import (
	"context"

	"go.uber.org/zap"

	"hostler"
)

var logger, _ = zap.NewProduction()

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	logger.Info("charged", zap.String("order", "o-1"))
	return nil
}
