// @with publish
package main

import (
	"errors"

	wit "go.bytecodealliance.org/pkg/wit/types"

	"example.com/orders-handler/bindings/hostler_handler_publisher"
	"example.com/orders-handler/order"
)

// publishInvoice publishes an invoice. It appears together with the acknowledgement: once for each order,
// or not at all.
func publishInvoice(o order.Order) error {
	result := hostler_handler_publisher.Publish("invoices", hostler_handler_publisher.Outgoing{
		Body:    []byte(o.JSON()),
		Headers: []wit.Tuple2[string, string]{{F0: "content-type", F1: "application/json"}},
		DelayMs: wit.None[uint64](),
	})
	if result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}

// @end
