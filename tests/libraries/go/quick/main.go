// The libraries of the quick cut, goroutines and failures.
package main

import (
	"hostler"

	"example.com/libraries/failures"
	"example.com/libraries/fasthttp"
	"example.com/libraries/goroutines"
	"example.com/libraries/nethttp"
	"example.com/libraries/one"
	"example.com/libraries/slog"
	"example.com/libraries/timezones"
	"example.com/libraries/uuid"
)

func main() {
	handlers := one.Handlers{
		"nethttp":    nethttp.Handle,
		"fasthttp":   fasthttp.Handle,
		"timezones":  timezones.Handle,
		"slog":       slog.Handle,
		"uuid":       uuid.Handle,
		"goroutines": goroutines.Handle,
		"failures":   failures.Handle,
	}
	hostler.Handle(handlers.Handle)
}
