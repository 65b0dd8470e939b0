package stripe

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v84"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	api := &stripe.BackendConfig{URL: stripe.String(hostler.Config("api"))}
	client := stripe.NewClient("sk", stripe.WithBackends(stripe.NewBackendsWithConfig(api)))
	params := &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(7), Currency: stripe.String("eur")}
	params.SetIdempotencyKey(m.ID)
	paid, err := client.V1PaymentIntents.Create(ctx, params)
	if err == nil && paid.ID != "pi_1" {
		err = fmt.Errorf("got %v", paid.ID)
	}
	return err
}
