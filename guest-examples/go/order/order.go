// Package order decides about an order. It does not depend on WebAssembly, so `go test` runs it
// directly.
package order

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"
)

// delayMax is the longest delay between two attempts.
const delayMax = 10 * time.Second

// Kind is the decision about an order.
type Kind int

const (
	Ack Kind = iota
	Again
	Reject
)

// Verdict is a decision, with its delay or its reason.
type Verdict struct {
	Kind   Kind
	Delay  time.Duration // of Again
	Reason string        // of Reject
}

func (v Verdict) String() string {
	switch v.Kind {
	case Again:
		return fmt.Sprintf("payment timed out, again in %d ms", v.Delay.Milliseconds())
	case Reject:
		return v.Reason
	default:
		return "charged"
	}
}

type order struct {
	ID       text   `json:"id"`
	Amount   number `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	// What to simulate: `payment-timeout`, `random` or `crash`.
	Simulate string `json:"simulate"`
	// How many attempts fail with `payment-timeout`.
	Failures uint32 `json:"failures"`
}

// text accepts text or a number: `XADD orders * id 1 amount 5` arrives as
// {"id":"1","amount":"5"}.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	*t = text(n)
	return nil
}

// number also accepts text or a number.
type number float64

func (n *number) UnmarshalJSON(raw []byte) error {
	var t text
	if err := json.Unmarshal(raw, &t); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(string(t), 64)
	*n = number(value)
	return err
}

var isCurrency = regexp.MustCompile(`^[A-Z]{3}$`).MatchString

// Handle charges an order. The first attempt is 1.
func Handle(body []byte, attempt uint32) Verdict {
	o := order{Amount: number(math.NaN()), Currency: "EUR", Failures: 1}
	// encoding/json repairs text that is not UTF-8, and accepts `null` for any object.
	err := json.Unmarshal(body, &o)
	if err != nil || !utf8.Valid(body) || !bytes.ContainsRune(body, '{') || o.ID == "" || math.IsNaN(float64(o.Amount)) {
		return Verdict{Kind: Reject, Reason: "not an order"}
	}
	reject := func(why string) Verdict {
		return Verdict{Kind: Reject, Reason: fmt.Sprintf("order %s: %s", o.ID, why)}
	}
	switch {
	case o.Amount <= 0:
		return reject("nothing to charge")
	case !isCurrency(o.Currency):
		return reject(fmt.Sprintf("`%s` is not a currency", o.Currency))
	case o.Status == "cancelled":
		return reject("it was cancelled")
	case o.Simulate == "payment-timeout" && attempt <= o.Failures:
		return Verdict{Kind: Again, Delay: delay(attempt)}
	case o.Simulate == "random":
		// No other message gets this number.
		return reject(fmt.Sprintf("drew %d", rand.Uint64()))
	case o.Simulate == "crash":
		// A bug that a second attempt does not cure. The host counts a failed attempt.
		panic(fmt.Sprintf("order %s hit a bug", o.ID))
	default:
		return Verdict{Kind: Ack}
	}
}

// delay doubles after every attempt.
func delay(attempt uint32) time.Duration {
	doublings := min(max(attempt, 1)-1, 10)
	return min(100*time.Millisecond<<doublings, delayMax)
}
