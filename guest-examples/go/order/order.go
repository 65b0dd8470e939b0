// Package order decides what happens to an order. Nothing here knows WebAssembly: `go test` runs
// it as it is.
package order

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"
)

// delayMax is the longest wait between two attempts.
const delayMax = 10 * time.Second

// Kind is what happens to an order.
type Kind int

const (
	Ack Kind = iota
	Again
	Reject
)

// Verdict is what happens to an order, and when or why.
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
	// What goes wrong, to try things out: `payment-timeout` or `crash`.
	Simulate string `json:"simulate"`
	// How many attempts `payment-timeout` fails.
	Failures uint32 `json:"failures"`
}

// text is given as text or number: `XADD orders * id 1 amount 5` arrives as
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

// number is given as text or number, too.
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
	// encoding/json repairs what is not UTF-8, and takes `null` for any object.
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
		return reject(fmt.Sprintf("`%s` is no currency", o.Currency))
	case o.Status == "cancelled":
		return reject("it was cancelled")
	case o.Simulate == "payment-timeout" && attempt <= o.Failures:
		return Verdict{Kind: Again, Delay: delay(attempt)}
	case o.Simulate == "crash":
		// A bug that no second attempt cures: the host counts it as a failed attempt.
		panic(fmt.Sprintf("order %s hit a bug", o.ID))
	default:
		return Verdict{Kind: Ack}
	}
}

// delay is twice as long after every attempt.
func delay(attempt uint32) time.Duration {
	doublings := min(max(attempt, 1)-1, 10)
	return min(100*time.Millisecond<<doublings, delayMax)
}
