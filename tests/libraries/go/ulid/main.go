package main

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	fmt.Println("drew", ulid.Make())
	return nil
}
