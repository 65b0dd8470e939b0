// A handler: it acks every message.
package main

import (
	"runtime/debug"

	handler "example.com/orders-handler/bindings/export_hostler_handler_message_handler"
	hostler "example.com/orders-handler/bindings/hostler_handler_types"
	_ "example.com/orders-handler/bindings/wit_exports"
)

func init() {
	// The garbage collector would read the clock while the host passes a message to the instance. No
	// call out is allowed at that time. So the collector is off; the host replaces the instance after
	// some messages.
	debug.SetGCPercent(-1)
	handler.Handler = handle
}

func handle(message hostler.Message) hostler.Outcome {
	return hostler.MakeOutcomeAck()
}

func main() {}
