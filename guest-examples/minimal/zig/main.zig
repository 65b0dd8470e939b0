//! A handler: it acks every message.

const c = @import("bindings");

const Message = c.exports_hostler_handler_message_handler_message_t;
const Outcome = c.exports_hostler_handler_message_handler_outcome_t;

export fn exports_hostler_handler_message_handler_handle(message: *Message, ret: *Outcome) void {
    defer c.hostler_handler_types_message_free(message);
    ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
}
