// Package failures has six failures, for the test of causes.
package failures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"hostler"
)

type Order struct {
	Fails string
	N     int
	Lines []int
	Buyer *struct{ Name string }
}

type Declined struct{ Order int }

func (d *Declined) Error() string { return fmt.Sprintf("order %d: declined", d.Order) }

var errSoldOut = errors.New("sold out")

// Handle fails as the body says.
func Handle(ctx context.Context, m hostler.Message, body []byte) error {
	var o Order
	if err := json.Unmarshal(body, &o); err != nil {
		return hostler.Drop(err.Error())
	}
	switch o.Fails {
	case "panic":
		panic(fmt.Sprintf("order %d hit a bug", o.N))
	case "nil":
		return pay(o.Buyer.Name)
	case "index":
		fmt.Println(o.Lines[o.N])
	case "error":
		return fmt.Errorf("order %d: no such customer", o.N)
	case "wrapped":
		return fmt.Errorf("order %d: %w", o.N, errSoldOut)
	case "type":
		return fmt.Errorf("charging: %w", &Declined{o.N})
	}
	return nil
}

func pay(string) error { return nil }
