// Package order reads orders. It does not depend on WebAssembly, so `go test` runs it directly.
package order

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Order is an order, as a shop sends it.
type Order struct {
	ID       string
	Customer string
	Cents    uint32
}

// Rejected is the reason for dropping an order.
type Rejected string

func (r Rejected) Error() string { return string(r) }

// A name can be a part of a key: 1 to 64 letters, digits and `-`.
var isName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`).MatchString

// Read reads an order. The error is of type Rejected.
func Read(body []byte) (Order, error) {
	var written struct {
		ID       string  `json:"id"`
		Customer string  `json:"customer"`
		Cents    *uint32 `json:"cents"`
	}
	err := json.Unmarshal(body, &written)
	if err != nil || !isName(written.ID) || !isName(written.Customer) || written.Cents == nil {
		return Order{}, Rejected("not an order")
	}
	if *written.Cents == 0 {
		return Order{}, Rejected(fmt.Sprintf("order %s: nothing to charge", written.ID))
	}
	return Order{written.ID, written.Customer, *written.Cents}, nil
}

// JSON is what others get to know about the order. Its names need no escapes.
func (o Order) JSON() string {
	return fmt.Sprintf(`{"order":"%s","customer":"%s","cents":%d}`, o.ID, o.Customer, o.Cents)
}
