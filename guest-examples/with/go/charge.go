// @with http
package main

import (
	"fmt"

	wit "go.bytecodealliance.org/pkg/wit/types"

	"example.com/orders-handler/bindings/hostler_handler_http"
	"example.com/orders-handler/order"
)

// hostler.toml grants this URL.
const charges = "https://payments.example.com/charges"

// charge charges an order by HTTP. hostler adds an idempotency key, the same in every attempt at this
// order: no order is paid twice.
func charge(o order.Order) error {
	result := hostler_handler_http.Fetch(hostler_handler_http.Request{
		Method:    "POST",
		Url:       charges,
		Headers:   []wit.Tuple2[string, []uint8]{{F0: "content-type", F1: []byte("application/json")}},
		Body:      wit.Some([]byte(o.JSON())),
		TimeoutMs: wit.None[uint32](),
	})
	if result.IsErr() {
		return fmt.Errorf("the payment failed: %v", result.Err())
	}
	switch status := result.Ok().Status; {
	case status >= 200 && status < 300:
		return nil
	case status >= 400 && status < 500:
		return order.Rejected(fmt.Sprintf("order %s: the payment was declined (%d)", o.ID, status))
	default:
		return fmt.Errorf("the payment server answered %d", status)
	}
}

// @end
