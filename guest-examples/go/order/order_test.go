package order

import (
	"math"
	"testing"
	"time"
)

func dropped(reason string) Verdict {
	return Verdict{Kind: Reject, Reason: reason}
}

func TestHandle(t *testing.T) {
	flaky := `{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":2}`
	cases := []struct {
		name    string
		body    string
		attempt uint32
		want    Verdict
	}{
		{"a good order", `{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}`, 1, Verdict{}},
		{"the fields of a stream entry", `{"id":"1","amount":"5"}`, 1, Verdict{}},
		{"numbers", `{"id":1,"amount":5}`, 1, Verdict{}},
		{"a payment times out", flaky, 1, Verdict{Kind: Again, Delay: 100 * time.Millisecond}},
		{"it times out again", flaky, 2, Verdict{Kind: Again, Delay: 200 * time.Millisecond}},
		{"then it works", flaky, 3, Verdict{}},
		{"no JSON", `hello`, 1, dropped("not an order")},
		{"an empty body", ``, 1, dropped("not an order")},
		{"null", `null`, 1, dropped("not an order")},
		{"no amount", `{"id":"o-3"}`, 1, dropped("not an order")},
		{"no id", `{"id":"","amount":1}`, 1, dropped("not an order")},
		{"no UTF-8", "{\"id\":\"\xff\",\"amount\":1}", 1, dropped("not an order")},
		{"nothing to charge", `{"id":"o-4","amount":0}`, 1, dropped("order o-4: nothing to charge")},
		{"cancelled", `{"id":5,"amount":1,"status":"cancelled"}`, 1, dropped("order 5: it was cancelled")},
		{"an unknown currency", `{"id":"o-6","amount":1,"currency":"euros"}`, 1, dropped("order o-6: `euros` is not a currency")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Handle([]byte(c.body), c.attempt); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTheDelayHasALimit(t *testing.T) {
	if got := delay(math.MaxUint32); got != delayMax {
		t.Errorf("got %v", got)
	}
}

func TestABugCrashes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	Handle([]byte(`{"id":"o-7","amount":1,"simulate":"crash"}`), 1)
}
