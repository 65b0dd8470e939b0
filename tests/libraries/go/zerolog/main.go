package main

import (
	"context"

	"github.com/rs/zerolog/log"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	log.Info().Str("order", "o-1").Msg("charged")
	return nil
}
