// Charges an order and makes its invoice, by Stripe's own library.
package main

import (
	"context"

	"github.com/stripe/stripe-go/v84"

	"hostler"
)

type Order struct {
	ID, Customer string
	Cents        int64
}

// The rule of [[grant.http]] sets the credential in the place of this one.
var client = stripe.NewClient("set by hostler")

func main() { hostler.Handle(charge) }

func charge(ctx context.Context, m hostler.Message, o Order) error {
	paid, err := client.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: &o.Cents, Currency: stripe.String("eur"), Customer: &o.Customer, Confirm: stripe.Bool(true)})
	if refused, ok := hostler.AsType[*stripe.Error](err); ok && refused.Type == stripe.ErrorTypeCard {
		return hostler.Dropf("order %s: %s", o.ID, refused.Msg)
	} else if err != nil {
		return err
	}
	invoice, err := client.V1Invoices.Create(ctx, &stripe.InvoiceCreateParams{Customer: &o.Customer, Description: &o.ID})
	if err != nil {
		return err
	}
	return hostler.Publish("invoices", map[string]string{"order": o.ID, "payment": paid.ID, "invoice": invoice.ID})
}
