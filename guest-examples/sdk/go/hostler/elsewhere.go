//go:build !wasip1

package hostler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// On this machine there is no host: the tests of a handler call its functions.
var errElsewhere = errors.New("hostler: only a handler on hostler can do this")

func serve(any, func(context.Context, Message) error) {
	fmt.Fprintln(os.Stderr, "This program is a handler: run `hostler dev`.")
	os.Exit(2)
}

func publish(string, outgoing) error { return errElsewhere }

// Secret reads a secret that [grant.secret] exposes. It can change while the handler runs.
func Secret(name string) (string, error) { return "", errElsewhere }

func hold(time.Duration) error { return errElsewhere }

func setReply([]byte) error { return errElsewhere }

func recall(string) ([]byte, error) { return nil, errElsewhere }

func remember(string, []byte) error { return errElsewhere }

// Config reads a value of [grant.config]; empty if there is none. Here it reads the variable of this name.
func Config(name string) string { return os.Getenv(name) }
