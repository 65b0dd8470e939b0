// @with secrets
package main

import (
	"errors"

	"example.com/orders-handler/bindings/hostler_handler_secrets"
	hostler "example.com/orders-handler/bindings/hostler_handler_types"
	"example.com/orders-handler/order"
)

// checkShop compares the token of the message with the secret.
func checkShop(message hostler.Message) error {
	secret := hostler_handler_secrets.Get("shop")
	if secret.IsErr() {
		return errors.New(secret.Err())
	}
	for _, header := range message.Headers {
		if header.F0 == "x-shop-token" && header.F1 == secret.Ok() {
			return nil
		}
	}
	return order.Rejected("the token of the shop is wrong")
}

// @end
