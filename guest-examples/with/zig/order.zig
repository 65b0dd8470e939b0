//! Reads orders. This file does not depend on WebAssembly, so `make test` runs it directly.

const std = @import("std");
const Allocator = std.mem.Allocator;

/// An order, as a shop sends it.
pub const Order = struct {
    id: []const u8,
    customer: []const u8,
    cents: u32,

    /// What others get to know about it. Its names need no escapes.
    pub fn json(order: Order, arena: Allocator) []const u8 {
        return print(arena,
            \\{{"order":"{s}","customer":"{s}","cents":{d}}}
        , .{ order.id, order.customer, order.cents });
    }
};

pub const Read = union(enum) {
    order: Order,
    /// The reason for dropping it.
    reject: []const u8,
};

/// Read an order. What it returns lives as long as the arena.
pub fn read(arena: Allocator, body: []const u8) Read {
    const order = std.json.parseFromSliceLeaky(Order, arena, body, .{ .ignore_unknown_fields = true }) catch
        return .{ .reject = "not an order" };
    if (!isName(order.id) or !isName(order.customer)) return .{ .reject = "not an order" };
    if (order.cents == 0) return .{ .reject = print(arena, "order {s}: nothing to charge", .{order.id}) };
    return .{ .order = order };
}

/// Text in an arena.
pub fn print(arena: Allocator, comptime format: []const u8, args: anytype) []const u8 {
    return std.fmt.allocPrint(arena, format, args) catch @panic("out of memory");
}

/// Whether a text can be a part of a key: 1 to 64 letters, digits and `-`.
fn isName(text: []const u8) bool {
    for (text) |char| if (!std.ascii.isAlphanumeric(char) and char != '-') return false;
    return text.len >= 1 and text.len <= 64;
}

const testing = std.testing;

test "an order is read and written" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const got = read(arena.allocator(),
        \\{"id":"o-1","customer":"c-7","cents":4250,"note":"x"}
    );
    try testing.expectEqualStrings(
        \\{"order":"o-1","customer":"c-7","cents":4250}
    , got.order.json(arena.allocator()));
}

test "other bodies are dropped with a reason" {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const bodies = [_][]const u8{
        "",                                                 "hello",
        "[]",                                               "{\"id\":\"o-1\",\"cents\":1}",
        "{\"id\":\"o 1\",\"customer\":\"c\",\"cents\":1}",  "{\"id\":\"o\",\"customer\":\"c\",\"cents\":-1}",
        "{\"id\":\"\xff\",\"customer\":\"c\",\"cents\":1}",
    };
    for (bodies) |body| try testing.expectEqualStrings("not an order", read(arena.allocator(), body).reject);
    try testing.expectEqualStrings("order o: nothing to charge", read(arena.allocator(),
        \\{"id":"o","customer":"c","cents":0}
    ).reject);
}
