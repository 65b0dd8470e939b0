package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"hostler"
)

func main() { hostler.Handle(handle) }

func handle(ctx context.Context, m hostler.Message, _ []byte) error {
	seventh, err := uuid.NewV7()
	fmt.Println("drew", uuid.New(), seventh)
	return err
}
