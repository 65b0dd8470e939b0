package hostler

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestABodyIsReadAsJSONOrAsItIs(t *testing.T) {
	var order struct{ Cents int }
	if err := read([]byte(`{"cents":7}`), &order); err != nil || order.Cents != 7 {
		t.Errorf("got %v, %v", order, err)
	}
	for _, bad := range []string{``, `hello`, `null`, ` null `, "{\"cents\":7,\"name\":\"\xff\"}", `{"cents":"7"}`} {
		if err := read([]byte(bad), &order); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
	var raw []byte
	if err := read([]byte("\xff\x00"), &raw); err != nil || string(raw) != "\xff\x00" {
		t.Errorf("got %q, %v", raw, err)
	}
}

func TestErrorsThatWrapKeepTheirMeaning(t *testing.T) {
	var drop *dropped
	if err := fmt.Errorf("order 7: %w", Drop("declined")); !errors.As(err, &drop) || err.Error() != "order 7: declined" {
		t.Errorf("got %v", err)
	}
	var again *later
	if err := fmt.Errorf("busy: %w", RetryAfter(time.Second)); !errors.As(err, &again) || err.Error() != "busy: again in 1s" {
		t.Errorf("got %v", err)
	}
}
