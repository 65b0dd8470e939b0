// A handler for orders. Package order decides; this file connects it to hostler.
package main

import (
	"fmt"
	"runtime/debug"

	wit "go.bytecodealliance.org/pkg/wit/types"

	handler "example.com/orders-handler/bindings/export_hostler_handler_message_handler"
	hostler "example.com/orders-handler/bindings/hostler_handler_types"
	_ "example.com/orders-handler/bindings/wit_exports"
	"example.com/orders-handler/order"
)

func init() {
	// The garbage collector would read the clock while the host passes a message to the instance. No
	// call out is allowed at that time. So the collector is off; the host replaces the instance after
	// some messages.
	debug.SetGCPercent(-1)
	handler.Handler = handle
}

func handle(message hostler.Message) hostler.Outcome {
	verdict := order.Handle(message.Body, message.Attempt)
	// Standard output goes to the host's log.
	fmt.Printf("attempt %d: %s\n", message.Attempt, verdict)
	switch verdict.Kind {
	case order.Again:
		delay := uint64(verdict.Delay.Milliseconds())
		return hostler.MakeOutcomeNackRequeue(wit.Some(delay))
	case order.Reject:
		return hostler.MakeOutcomeDrop(wit.Some(verdict.Reason))
	default:
		return hostler.MakeOutcomeAck()
	}
}

func main() {}
