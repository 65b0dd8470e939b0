//! The orders example as a program. order.zig decides.

const std = @import("std");
const order = @import("order");

const try_again = 75;
const drop = 65;

pub fn main(init: std.process.Init) !void {
    const io = init.io;
    // stdin has no positions here: it is read as a stream.
    var buffer: [4096]u8 = undefined;
    var stdin = std.Io.File.stdin().readerStreaming(io, &buffer);
    const body = try stdin.interface.allocRemaining(init.gpa, .unlimited);
    const number = init.environ_map.get("HOSTLER_ATTEMPT") orelse return error.NoAttempt;
    const attempt = try std.fmt.parseInt(u32, number, 10);
    const verdict = order.handle(init.gpa, body, attempt);
    var stdout = std.Io.File.stdout().writerStreaming(io, &.{});
    try stdout.interface.print("attempt {d}: {f}\n", .{ attempt, verdict });
    switch (verdict) {
        .ack => {},
        .again => std.process.exit(try_again),
        .reject => |reason| {
            std.debug.print("{s}\n", .{reason});
            std.process.exit(drop);
        },
    }
}
