#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hostler_fuzz::components::component(data);
});
