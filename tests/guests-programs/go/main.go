// The orders example as a program. Package order decides.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"example.com/orders-handler/order"
)

const (
	tryAgain = 75
	drop     = 65
)

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	attempt, err := strconv.ParseUint(os.Getenv("HOSTLER_ATTEMPT"), 10, 32)
	if err != nil {
		panic(err)
	}
	verdict := order.Handle(body, uint32(attempt))
	fmt.Printf("attempt %d: %s\n", attempt, verdict)
	switch verdict.Kind {
	case order.Again:
		os.Exit(tryAgain)
	case order.Reject:
		fmt.Fprintln(os.Stderr, verdict.Reason)
		os.Exit(drop)
	}
}
