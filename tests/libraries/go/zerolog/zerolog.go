package zerolog

import (
	"context"

	"github.com/rs/zerolog/log"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	log.Info().Str("order", "o-1").Msg("charged")
	return nil
}
