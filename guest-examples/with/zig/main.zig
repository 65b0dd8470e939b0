//! A handler for orders. order.zig reads them; this file does the rest.

const std = @import("std");
const c = @import("bindings");
const order = @import("order.zig");

const Allocator = std.mem.Allocator;
const Message = c.exports_hostler_handler_message_handler_message_t;
const Order = order.Order;
const Outcome = c.exports_hostler_handler_message_handler_outcome_t;

/// Log lines go to standard error, and from there to the host's log.
pub const std_options: std.Options = .{ .log_level = .info };

/// Why an order is not done.
const Stop = union(enum) {
    /// Give up, with this reason.
    reject: []const u8,
    /// It may work later: the message comes again, after the backoff of the queue.
    later: []const u8,
};

export fn exports_hostler_handler_message_handler_handle(message: *Message, ret: *Outcome) void {
    defer c.hostler_handler_types_message_free(message);
    var arena: std.heap.ArenaAllocator = .init(std.heap.c_allocator);
    defer arena.deinit();
    const stop = fulfil(arena.allocator(), message) orelse {
        ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
        return;
    };
    switch (stop) {
        .reject => |reason| {
            ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_DROP;
            ret.val.drop.is_some = true;
            // The bindings free this copy after the host has read it.
            c.handler_string_dup_n(&ret.val.drop.val, reason.ptr, reason.len);
        },
        .later => |why| {
            std.log.info("later: {s}", .{why});
            ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_NACK_REQUEUE;
            ret.val.nack_requeue.is_some = false;
        },
    }
}

/// Do everything for an order.
fn fulfil(arena: Allocator, message: *const Message) ?Stop {
    // @with secrets
    if (checkShop(message)) |stop| return stop;
    // @end
    const read = switch (order.read(arena, message.body.ptr[0..message.body.len])) {
        .order => |read| read,
        .reject => |reason| return .{ .reject = reason },
    };
    // @with http
    if (charge(arena, read)) |stop| return stop;
    // @end
    // @with key-value
    if (addToTotal(arena, read)) |stop| return stop;
    // @end
    // @with publish
    if (publishInvoice(arena, read)) |stop| return stop;
    // @end
    std.log.info("done: {s}", .{read.json(arena)});
    return null;
}

/// Text for a call. The call does not change it.
fn string(text: []const u8) c.handler_string_t {
    return .{ .ptr = @constCast(text.ptr), .len = text.len };
}
// @with http key-value publish

fn bytes(text: []const u8) c.handler_list_u8_t {
    return .{ .ptr = @constCast(text.ptr), .len = text.len };
}
// @end
// @with key-value publish secrets

fn later(why: c.handler_string_t) Stop {
    return .{ .later = why.ptr[0..why.len] };
}
// @end
// @with secrets

/// Compare the token of the message with the secret.
fn checkShop(message: *const Message) ?Stop {
    var name = string("shop");
    var secret: c.handler_string_t = undefined;
    var failure: c.handler_string_t = undefined;
    if (!c.hostler_handler_secrets_get(&name, &secret, &failure)) return later(failure);
    defer c.handler_string_free(&secret);
    for (message.headers.ptr[0..message.headers.len]) |header| {
        const is_token = std.mem.eql(u8, header.f0.ptr[0..header.f0.len], "x-shop-token");
        if (is_token and std.mem.eql(u8, header.f1.ptr[0..header.f1.len], secret.ptr[0..secret.len])) return null;
    }
    return .{ .reject = "the token of the shop is wrong" };
}
// @end
// @with http

/// hostler.toml grants this URL.
const charges = "https://payments.example.com/charges";

/// Charge an order by HTTP. hostler adds an idempotency key, the same in every attempt at this order: no order is
/// paid twice.
fn charge(arena: Allocator, read: Order) ?Stop {
    var header: c.handler_tuple2_string_list_u8_t = .{ .f0 = string("content-type"), .f1 = bytes("application/json") };
    var request: c.hostler_handler_http_request_t = .{
        .method = string("POST"),
        .url = string(charges),
        .headers = .{ .ptr = &header, .len = 1 },
        .body = .{ .is_some = true, .val = bytes(read.json(arena)) },
        .timeout_ms = .{ .is_some = false, .val = 0 },
    };
    var response: c.hostler_handler_http_response_t = undefined;
    var failure: c.hostler_handler_http_error_t = undefined;
    if (!c.hostler_handler_http_fetch(&request, &response, &failure)) {
        defer c.hostler_handler_http_error_free(&failure);
        return .{ .later = order.print(arena, "the payment failed with error {d}", .{failure.tag}) };
    }
    defer c.hostler_handler_http_response_free(&response);
    return switch (response.status) {
        200...299 => null,
        400...499 => |status| .{ .reject = order.print(arena, "order {s}: the payment was declined ({d})", .{ read.id, status }) },
        else => |status| .{ .later = order.print(arena, "the payment server answered {d}", .{status}) },
    };
}
// @end
// @with key-value

/// Remember how much the customer has ordered. The sum is written together with the acknowledgement: each order
/// counts once.
fn addToTotal(arena: Allocator, read: Order) ?Stop {
    var key = string(order.print(arena, "total:{s}", .{read.customer}));
    var known: c.handler_option_list_u8_t = undefined;
    var failure: c.handler_string_t = undefined;
    if (!c.hostler_handler_key_value_get(&key, &known, &failure)) return later(failure);
    defer c.handler_option_list_u8_free(&known);
    const digits = if (known.is_some) known.val.ptr[0..known.val.len] else "0";
    const sum = (std.fmt.parseInt(u64, digits, 10) catch 0) +| read.cents;
    var value = bytes(order.print(arena, "{d}", .{sum}));
    if (!c.hostler_handler_key_value_set(&key, &value, null, &failure)) return later(failure);
    // A customer who orders needs no reminder. It goes with the acknowledgement, too.
    var reminder = string(order.print(arena, "reminder:{s}", .{read.customer}));
    if (!c.hostler_handler_key_value_delete(&reminder, &failure)) return later(failure);
    // At once: an order that is handled twice counts twice.
    var counter = string("attempts");
    var attempts: i64 = undefined;
    if (!c.hostler_handler_key_value_increment(&counter, 1, &attempts, &failure)) return later(failure);
    return null;
}
// @end
// @with publish

/// Publish an invoice. It appears together with the acknowledgement: once for each order, or not at all.
fn publishInvoice(arena: Allocator, read: Order) ?Stop {
    var header: c.handler_tuple2_string_string_t = .{ .f0 = string("content-type"), .f1 = string("application/json") };
    var invoice: c.hostler_handler_publisher_outgoing_t = .{
        .body = bytes(read.json(arena)),
        .headers = .{ .ptr = &header, .len = 1 },
        .delay_ms = .{ .is_some = false, .val = 0 },
    };
    var queue = string("invoices");
    var failure: c.handler_string_t = undefined;
    if (!c.hostler_handler_publisher_publish(&queue, &invoice, &failure)) return later(failure);
    return null;
}
// @end
