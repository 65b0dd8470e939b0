// Package one makes one handler of several: a component costs some seconds to compile.
package one

import (
	"context"
	"strings"

	"hostler"
)

// Handlers by their names.
type Handlers map[string]func(context.Context, hostler.Message, []byte) error

// Handle passes a message to the handler that the first word of its body names.
func (h Handlers) Handle(ctx context.Context, m hostler.Message, body []byte) error {
	name, rest, _ := strings.Cut(string(body), " ")
	handle, ok := h[name]
	if !ok {
		return hostler.Drop("no handler " + name)
	}
	return handle(ctx, m, []byte(rest))
}
