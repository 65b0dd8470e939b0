const std = @import("std");

pub fn build(b: *std.Build) void {
    const wasm = b.resolveTargetQuery(.{ .cpu_arch = .wasm32, .os_tag = .wasi });
    const bindings = b.addTranslateC(.{
        .root_source_file = b.path("bindings/handler.h"),
        .target = wasm,
        .optimize = .ReleaseSmall,
    });
    const main = b.createModule(.{
        .root_source_file = b.path("main.zig"),
        .target = wasm,
        .optimize = .ReleaseSmall,
        .link_libc = true,
        .strip = true,
        .imports = &.{.{ .name = "bindings", .module = bindings.createModule() }},
    });
    main.addCSourceFile(.{ .file = b.path("bindings/handler.c") });
    main.addObjectFile(b.path("bindings/handler_component_type.o"));

    const core = b.addExecutable(.{ .name = "core", .root_module = main });
    core.entry = .disabled;
    core.rdynamic = true;
    core.wasi_exec_model = .reactor;
    core.stack_size = 1 << 20;
    b.installArtifact(core);

    const tests = b.addTest(.{ .root_module = b.createModule(.{
        .root_source_file = b.path("order.zig"),
        .target = b.graph.host,
    }) });
    const run_tests = b.addRunArtifact(tests);
    b.step("test", "Run the tests on this machine").dependOn(&run_tests.step);
}
