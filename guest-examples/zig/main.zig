//! Connects order.zig to hostler's WIT.

const std = @import("std");
const c = @import("bindings");
const order = @import("order.zig");

const Message = c.exports_hostler_handler_message_handler_message_t;
const Outcome = c.exports_hostler_handler_message_handler_outcome_t;

/// Log lines go to standard error, and from there to the host's log.
pub const std_options: std.Options = .{ .log_level = .info };

export fn exports_hostler_handler_message_handler_handle(message: *Message, ret: *Outcome) void {
    defer c.hostler_handler_types_message_free(message);
    // The bindings free the reason with the allocator of C after the host has read it.
    const verdict = order.handle(std.heap.c_allocator, message.body.ptr[0..message.body.len], message.attempt);
    std.log.info("attempt {d}: {f}", .{ message.attempt, verdict });
    switch (verdict) {
        .ack => ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_ACK,
        .again => |delay_ms| {
            ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
            ret.val.nack_requeue = .{ .is_some = true, .val = delay_ms };
        },
        .reject => |reason| {
            ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
            ret.val.drop = .{ .is_some = true, .val = .{ .ptr = reason.ptr, .len = reason.len } };
        },
    }
}
