package main

import (
	"context"
	"testing"

	"hostler"
)

func TestCharge(t *testing.T) {
	if err := charge(context.Background(), hostler.Message{Attempt: 1}, Order{ID: "o-1", Cents: 4250}); err != nil {
		t.Error(err)
	}
	err := charge(context.Background(), hostler.Message{}, Order{ID: "o-2"})
	if err == nil || err.Error() != "order o-2: nothing to charge" {
		t.Errorf("got %v", err)
	}
}
