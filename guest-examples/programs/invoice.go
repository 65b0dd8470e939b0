// A program as a handler: reads an order like `A-1 250`, and writes its invoice to stdout.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

const (
	tryAgain = 75
	drop     = 65
)

func end(code int, reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(code)
}

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	words := strings.Fields(string(body))
	if len(words) != 2 {
		end(drop, "not an order: it needs an id and an amount")
	}
	id, amount := words[0], words[1]
	if amount == "crash" {
		panic("a bug in order " + id)
	}
	cents, err := strconv.ParseUint(amount, 10, 32)
	if err != nil {
		end(drop, "not an order: the amount is not a number")
	}
	if cents == 0 {
		end(tryAgain, "order "+id+" has no amount yet")
	}
	fmt.Printf("invoice %s %d\n", id, cents)
}
