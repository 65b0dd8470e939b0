// A handler for orders. Package order reads them; this file connects the parts to hostler.
package main

import (
	"errors"
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
	err := fulfil(message)
	var rejected order.Rejected
	switch {
	case err == nil:
		return hostler.MakeOutcomeAck()
	case errors.As(err, &rejected):
		return hostler.MakeOutcomeDrop(wit.Some(err.Error()))
	default:
		// It may work later: the message comes again, after the backoff of the queue.
		fmt.Println("later:", err)
		return hostler.MakeOutcomeNackRequeue(wit.None[uint64]())
	}
}

// fulfil does everything for an order.
func fulfil(message hostler.Message) error {
	// @with secrets
	if err := checkShop(message); err != nil {
		return err
	}
	// @end
	o, err := order.Read(message.Body)
	if err != nil {
		return err
	}
	// @with http
	if err := charge(o); err != nil {
		return err
	}
	// @end
	// @with key-value
	if err := addToTotal(o); err != nil {
		return err
	}
	// @end
	// @with publish
	if err := publishInvoice(o); err != nil {
		return err
	}
	// @end
	// Standard output goes to the host's log.
	fmt.Println("done:", o.JSON())
	return nil
}

func main() {}
