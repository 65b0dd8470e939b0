// Package export_hostler_handler_message_handler is where the generated bindings look for the
// handler.
package export_hostler_handler_message_handler

import "orders-handler/bindings/hostler_handler_types"

// Handler is called for every message; main sets it.
var Handler func(hostler_handler_types.Message) hostler_handler_types.Outcome

// Handle is called by the bindings.
func Handle(message hostler_handler_types.Message) hostler_handler_types.Outcome {
	return Handler(message)
}
