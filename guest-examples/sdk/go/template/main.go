package main

import (
	// @with http
	"bytes"
	// @end
	"context"
	// @with http
	"encoding/json"
	"fmt"
	// @end
	"log/slog"
	// @with http
	"net/http"
	// @end
	// @with key-value
	"strconv"
	// @end

	"hostler"
	// @with key-value
	"hostler/kv"
	// @end
)

type Order struct {
	ID    string `json:"id"`
	// @with publish http key-value
	Customer string `json:"customer"`
	// @end
	Cents int    `json:"cents"`
}

func main() { hostler.Handle(charge) }

func charge(ctx context.Context, m hostler.Message, o Order) error {
	if o.Cents <= 0 {
		return hostler.Drop("order " + o.ID + ": nothing to charge")
	}
	// @with secrets
	if token, err := hostler.Secret("shop"); err != nil {
		return err
	} else if m.Headers["x-shop-token"] != token {
		return hostler.Drop("the token of the shop is wrong")
	}
	// @end
	// @with http
	// hostler adds an idempotency key, the same in every attempt: no order is paid twice.
	body, _ := json.Marshal(o)
	response, err := http.Post("https://payments.example.com/charges", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode == http.StatusPaymentRequired {
		return hostler.Drop("order " + o.ID + ": the payment was declined")
	} else if response.StatusCode >= 300 {
		return fmt.Errorf("the payment server said %s", response.Status)
	}
	// @end
	// @with key-value
	// Written with the ack: each order counts once.
	key := "total:" + o.Customer
	stored, err := kv.Get(key)
	if err != nil {
		return err
	}
	total, _ := strconv.Atoi(string(stored))
	if err := kv.Set(key, strconv.AppendInt(nil, int64(total+o.Cents), 10)); err != nil {
		return err
	}
	// @end
	// @with publish
	// With the ack, too: each order has one invoice.
	if err := hostler.Publish("invoices", o); err != nil {
		return err
	}
	// @end
	slog.Info("done", "order", o.ID, "attempt", m.Attempt)
	return nil
}
