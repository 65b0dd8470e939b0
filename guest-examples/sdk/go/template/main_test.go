// @with order
package main

import (
	"context"
	"testing"

	"hostler"
)

func TestAnOrderWithoutAnAmountIsDropped(t *testing.T) {
	err := charge(context.Background(), hostler.Message{}, Order{ID: "o-2"})
	if err == nil || err.Error() != "order o-2: nothing to charge" {
		t.Errorf("got %v", err)
	}
}
// @end
