//! A program as a handler: reads an order like `A-1 250`, and writes its invoice to stdout.

const std = @import("std");

const try_again = 75;
const drop = 65;

fn end(code: u8, reason: []const u8) noreturn {
    std.debug.print("{s}\n", .{reason});
    std.process.exit(code);
}

pub fn main(init: std.process.Init) !void {
    const io = init.io;
    var buffer: [512]u8 = undefined;
    var stdin = std.Io.File.stdin().readerStreaming(io, &.{});
    const length = try stdin.interface.readSliceShort(&buffer);
    var words = std.mem.tokenizeAny(u8, buffer[0..length], " \r\n\t");
    const id = words.next() orelse "";
    const amount = words.next() orelse end(drop, "not an order: it needs an id and an amount");
    if (words.next() != null) end(drop, "not an order: it needs an id and an amount");
    if (std.mem.eql(u8, amount, "crash")) std.debug.panic("a bug in order {s}", .{id});
    const cents = std.fmt.parseInt(u32, amount, 10) catch
        end(drop, "not an order: the amount is not a number");
    if (cents == 0) {
        std.debug.print("order {s} has no amount yet\n", .{id});
        std.process.exit(try_again);
    }
    var stdout = std.Io.File.stdout().writerStreaming(io, &.{});
    try stdout.interface.print("invoice {s} {d}\n", .{ id, cents });
}
