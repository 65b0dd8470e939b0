//! Decides about an order. This file does not depend on WebAssembly, so `make test` runs it directly.

const std = @import("std");
const Allocator = std.mem.Allocator;
const Value = std.json.Value;

/// The longest delay between two attempts, in milliseconds.
const delay_max = 10_000;

pub const Verdict = union(enum) {
    ack,
    /// Try again after this many milliseconds.
    again: u64,
    /// The reason. The caller frees it.
    reject: []u8,

    pub fn format(verdict: Verdict, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        switch (verdict) {
            .ack => try writer.writeAll("charged"),
            .again => |delay_ms| try writer.print("payment timed out, again in {d} ms", .{delay_ms}),
            .reject => |reason| try writer.writeAll(reason),
        }
    }
};

const Order = struct {
    id: []const u8,
    amount: f64,
    currency: []const u8,
    status: []const u8,
    /// What to simulate: `payment-timeout`, `random` or `crash`.
    simulate: []const u8,
    /// How many attempts fail with `payment-timeout`.
    failures: u32,
};

/// Charge an order. `attempt` is 1 the first time.
pub fn handle(allocator: Allocator, body: []const u8, attempt: u32) Verdict {
    var arena: std.heap.ArenaAllocator = .init(allocator);
    defer arena.deinit();
    const order = parse(arena.allocator(), body) catch return reject(allocator, "not an order", .{});
    const id = order.id;

    if (!(order.amount > 0)) return reject(allocator, "order {s}: nothing to charge", .{id});
    if (!isCurrency(order.currency)) return reject(allocator, "order {s}: `{s}` is not a currency", .{ id, order.currency });
    if (is(order.status, "cancelled")) return reject(allocator, "order {s}: it was cancelled", .{id});
    if (is(order.simulate, "payment-timeout") and attempt <= order.failures) return .{ .again = delay(attempt) };
    // No other message gets this number.
    if (is(order.simulate, "random")) return reject(allocator, "order {s}: drew {d}", .{ id, random() });
    // A bug that a second attempt does not cure. The host counts a failed attempt.
    if (is(order.simulate, "crash")) std.debug.panic("order {s} hit a bug", .{id});
    return .ack;
}

fn reject(allocator: Allocator, comptime format: []const u8, args: anytype) Verdict {
    return .{ .reject = std.fmt.allocPrint(allocator, format, args) catch @panic("out of memory") };
}

/// The delay doubles after every attempt, in milliseconds.
fn delay(attempt: u32) u64 {
    const doublings = @min(@max(attempt, 1) - 1, 10);
    return @min(@as(u64, 100) << @intCast(doublings), delay_max);
}

fn random() u64 {
    var drawn: u64 = undefined;
    std.Io.Threaded.global_single_threaded.io().random(std.mem.asBytes(&drawn));
    return drawn;
}

const NotAnOrder = error{NotAnOrder};

fn parse(arena: Allocator, body: []const u8) !Order {
    const json = try std.json.parseFromSliceLeaky(Value, arena, body, .{
        .duplicate_field_behavior = .use_last,
        // Keep numbers as text: an id may be longer than any number type.
        .parse_numbers = false,
    });
    if (json != .object) return error.NotAnOrder;
    const fields = json.object;
    const id = try textOrNumber(fields.get("id"));
    return .{
        .id = if (id.len > 0) id else return error.NotAnOrder,
        .amount = try number(try textOrNumber(fields.get("amount"))),
        .currency = try text(fields.get("currency"), "EUR"),
        .status = try text(fields.get("status"), ""),
        .simulate = try text(fields.get("simulate"), ""),
        .failures = try count(fields.get("failures"), 1),
    };
}

/// `XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`, so text and numbers are accepted.
fn textOrNumber(value: ?Value) NotAnOrder![]const u8 {
    return switch (value orelse return error.NotAnOrder) {
        .string, .number_string => |given| given,
        else => error.NotAnOrder,
    };
}

fn number(given: []const u8) !f64 {
    // `parseFloat` accepts more than JSON allows: `0x10`, `1_000`, `nan`.
    for (given) |char| switch (char) {
        '0'...'9', '-', '+', '.', 'e', 'E' => {},
        else => return error.NotAnOrder,
    };
    const value = try std.fmt.parseFloat(f64, given);
    return if (std.math.isFinite(value)) value else error.NotAnOrder;
}

fn text(value: ?Value, default: []const u8) NotAnOrder![]const u8 {
    return switch (value orelse return default) {
        .string => |given| given,
        .null => default,
        else => error.NotAnOrder,
    };
}

fn count(value: ?Value, default: u32) !u32 {
    return switch (value orelse return default) {
        .number_string => |given| try std.fmt.parseInt(u32, given, 10),
        else => error.NotAnOrder,
    };
}

fn is(given: []const u8, word: []const u8) bool {
    return std.mem.eql(u8, given, word);
}

fn isCurrency(given: []const u8) bool {
    for (given) |char| if (!std.ascii.isUpper(char)) return false;
    return given.len == 3;
}

const testing = std.testing;

fn expect(want: Verdict, body: []const u8, attempt: u32) !void {
    const got = handle(testing.allocator, body, attempt);
    defer if (got == .reject) testing.allocator.free(got.reject);
    try testing.expectEqualDeep(want, got);
}

fn expectReject(reason: []const u8, body: []const u8) !void {
    try expect(.{ .reject = @constCast(reason) }, body, 1);
}

test "good orders are acked" {
    try expect(.ack,
        \\{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}
    , 1);
    // All fields of a stream entry are text.
    try expect(.ack,
        \\{"id":"1","amount":"5"}
    , 1);
    try expect(.ack,
        \\{"id":1,"amount":5}
    , 1);
}

test "a payment that times out is tried again with growing delays" {
    const body =
        \\{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":3}
    ;
    try expect(.{ .again = 100 }, body, 1);
    try expect(.{ .again = 200 }, body, 2);
    try expect(.{ .again = 400 }, body, 3);
    try expect(.ack, body, 4);
    try testing.expectEqual(delay_max, delay(std.math.maxInt(u32)));
}

test "bodies that are not orders are dropped" {
    const bodies = [_][]const u8{
        "",                               "hello", "[]", "null", "{}",
        \\{"id":"o-3"}
        ,
        \\{"id":"","amount":1}
        ,
        \\{"id":"o-3","amount":"five"}
        ,
        \\{"id":"\ud800","amount":1}
        ,
        "{\"id\":\"\xff\",\"amount\":1}",
    };
    for (bodies) |body| try expectReject("not an order", body);
}

test "orders that cannot be charged are dropped with a reason" {
    try expectReject("order o-4: nothing to charge",
        \\{"id":"o-4","amount":0}
    );
    try expectReject("order 5: it was cancelled",
        \\{"id":5,"amount":1,"status":"cancelled"}
    );
    try expectReject("order o-6: `euros` is not a currency",
        \\{"id":"o-6","amount":1,"currency":"euros"}
    );
}
