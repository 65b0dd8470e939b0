// Charges an order and makes its invoice, by Stripe's own library.
package main

import (
	"context"
	"errors"

	"github.com/stripe/stripe-go/v84"

	"hostler"
)

type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// The rule of [[grant.http]] sets the credential in the place of this one.
var client = stripe.NewClient("set by hostler")

func main() { hostler.Handle(charge) }

func charge(ctx context.Context, m hostler.Message, o Order) error {
	payment := &stripe.PaymentIntentCreateParams{
		Amount: &o.Cents, Currency: stripe.String("eur"), Customer: &o.Customer, Confirm: stripe.Bool(true)}
	// Of itself the library draws another key in each attempt.
	payment.SetIdempotencyKey(m.ID)
	paid, err := client.V1PaymentIntents.Create(ctx, payment)
	var refused *stripe.Error
	if errors.As(err, &refused) && refused.Type == stripe.ErrorTypeCard {
		return hostler.Drop("order " + o.ID + ": " + refused.Msg)
	} else if err != nil {
		return err
	}
	invoice := &stripe.InvoiceCreateParams{Customer: &o.Customer, Description: &o.ID}
	invoice.SetIdempotencyKey(m.ID + "-invoice")
	made, err := client.V1Invoices.Create(ctx, invoice)
	if err != nil {
		return err
	}
	return hostler.Publish("invoices", map[string]string{"order": o.ID, "payment": paid.ID, "invoice": made.ID})
}
