// Package export_hostler_handler_message_handler holds the handler. The generated bindings expect it
// here.
package export_hostler_handler_message_handler

import "hostler/bindings/hostler_handler_types"

// Handler handles one message. Package main sets it.
var Handler func(hostler_handler_types.Message) hostler_handler_types.Outcome

// Handle passes a message from the bindings to Handler.
func Handle(message hostler_handler_types.Message) hostler_handler_types.Outcome {
	return Handler(message)
}
