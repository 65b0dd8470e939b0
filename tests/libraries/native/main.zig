//! Fails as the body says: {"fails": "divide", "n": 7}.

const std = @import("std");
const c = @import("bindings");

const Message = c.exports_hostler_handler_message_handler_message_t;
const Outcome = c.exports_hostler_handler_message_handler_outcome_t;
const Order = struct { fails: enum { price, weight, amount, divide, look, call }, n: i64 };

// The same message in two functions, with another number in each order. (The compiler makes one of two equal functions.)
noinline fn price(n: i64) noreturn {
    std.debug.panic("order {d} hit a bug", .{n});
}

noinline fn weight(n: i64) noreturn {
    std.debug.panic("order {d} hit a bug", .{n + 1});
}

noinline fn amount(n: i64) noreturn {
    std.debug.panic("order {d} has no amount", .{n});
}

noinline fn divide(n: i64) i64 {
    var zero: i64 = 0;
    const divisor: *volatile i64 = &zero;
    return @divTrunc(n, divisor.*);
}

// Behind the end of the memory.
noinline fn look(n: i64) u8 {
    const end: usize = std.math.maxInt(usize) - 65535;
    const lines: [*]volatile u8 = @ptrFromInt(end);
    return lines[@intCast(n)];
}

// Endless: the stack is exhausted.
noinline fn call(n: i64) i64 {
    var kept = n;
    const next: *volatile i64 = &kept;
    return call(next.* + 1) + next.*;
}

export fn exports_hostler_handler_message_handler_handle(message: *Message, ret: *Outcome) void {
    defer c.hostler_handler_types_message_free(message);
    const body = message.body.ptr[0..message.body.len];
    const order = std.json.parseFromSlice(Order, std.heap.c_allocator, body, .{}) catch @panic("not an order");
    const n = order.value.n;
    switch (order.value.fails) {
        .price => price(n),
        .weight => weight(n),
        .amount => amount(n),
        .divide => std.log.info("{d}", .{divide(n)}),
        .look => std.log.info("{d}", .{look(n)}),
        .call => std.log.info("{d}", .{call(n)}),
    }
    ret.tag = c.HOSTLER_HANDLER_TYPES_OUTCOME_ACK;
}
