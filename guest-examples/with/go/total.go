// @with key-value
package main

import (
	"errors"
	"strconv"

	wit "go.bytecodealliance.org/pkg/wit/types"

	"example.com/orders-handler/bindings/hostler_handler_key_value"
	"example.com/orders-handler/order"
)

// addToTotal remembers how much the customer has ordered. The sum is written together with the
// acknowledgement: each order counts once.
func addToTotal(o order.Order) error {
	key := "total:" + o.Customer
	known := hostler_handler_key_value.Get(key)
	if known.IsErr() {
		return errors.New(known.Err())
	}
	var sum uint64
	if value := known.Ok(); value.IsSome() {
		sum, _ = strconv.ParseUint(string(value.Some()), 10, 64)
	}
	sum += uint64(o.Cents)
	result := hostler_handler_key_value.Set(key, []byte(strconv.FormatUint(sum, 10)), wit.None[uint64]())
	if result.IsErr() {
		return errors.New(result.Err())
	}
	// A customer who orders needs no reminder. It goes with the acknowledgement, too.
	result = hostler_handler_key_value.Delete("reminder:" + o.Customer)
	if result.IsErr() {
		return errors.New(result.Err())
	}
	// At once: an order that is handled twice counts twice.
	attempts := hostler_handler_key_value.Increment("attempts", 1)
	if attempts.IsErr() {
		return errors.New(attempts.Err())
	}
	return nil
}

// @end
