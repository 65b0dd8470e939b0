package main

import (
	"context"
	"fmt"

	"github.com/araddon/dateparse"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	at, err := dateparse.ParseAny("oct 7, 2025, 3:04 pm")
	if err == nil && at.Unix() != 1759849440 {
		err = fmt.Errorf("got %v", at)
	}
	return err
}
