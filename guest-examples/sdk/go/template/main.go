package main

import (
	"context"
	"log/slog"

	"hostler"
)

type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func main() { hostler.Handle(charge) }

func charge(ctx context.Context, m hostler.Message, o Order) error {
	if o.Cents <= 0 {
		return hostler.Drop("order " + o.ID + ": nothing to charge")
	}
	slog.Info("charged", "order", o.ID, "cents", o.Cents, "attempt", m.Attempt)
	return nil
}
