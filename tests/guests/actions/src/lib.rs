//! What a guest does to its host, whatever its world is. Each action has a name and perhaps an argument.
//!
//! `sleep:MS`, `spin:MS`, `loop`, `busy` (for ever, in calls of the host), `doze` (for ever, napping in between),
//! `trap`, `panic`, `exit:CODE`, `grow:MIB`, `recurse:DEPTH`, `recurse-host:DEPTH`, `copy:MIB` (for ever), `lines:N`,
//! `long:BYTES` (one line), `text:TEXT`, `err:TEXT` (on stderr), `ansi`, `half` (a line without an end), `world` (what
//! there is of arguments, variables, files and network), `random:BYTES`; and where the guest is a component `handles:N`
//! (held, and given back), `leak:N` (held for ever).

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Do this. Whether there is such an action.
pub fn act(name: &str, argument: &str) -> bool {
    let number = || number(name, argument);
    match name {
        "sleep" => std::thread::sleep(Duration::from_millis(number())),
        "spin" => spin(Duration::from_millis(number())),
        "loop" => loop {
            black_box(0);
        },
        "busy" => loop {
            black_box(system::now());
        },
        "doze" => loop {
            spin(Duration::from_millis(9));
            std::thread::sleep(Duration::from_millis(1));
        },
        "trap" => core::arch::wasm32::unreachable(),
        "panic" => panic!("asked to panic"),
        "exit" => std::process::exit(number() as i32),
        "grow" => grow(number() as usize),
        "recurse" => {
            black_box(recurse(number()));
        }
        "recurse-host" => {
            black_box(recurse_host(number()));
        }
        "copy" => copy(number() as usize),
        "lines" => (0..number()).for_each(|i| println!("line {i}")),
        "long" => println!("{}", "y".repeat(number() as usize)),
        "text" => println!("{argument}"),
        "err" => eprintln!("{argument}"),
        "ansi" => println!("\u{1b}[31mred\u{1b}[0m\rforged\u{202e}\u{85}\0"),
        "half" => {
            print!("half");
            std::io::stdout().flush().expect("stdout is there");
        }
        "world" => println!("{}", world()),
        "random" => system::random(number()),
        #[cfg(target_env = "p2")]
        "handles" => drop(black_box(system::handles(number()))),
        #[cfg(target_env = "p2")]
        "leak" => std::mem::forget(system::handles(number())),
        _ => return false,
    }
    true
}

/// The argument of an action as a number.
pub fn number(name: &str, argument: &str) -> u64 {
    argument
        .parse()
        .unwrap_or_else(|_| panic!("`{name}` needs a number, not `{argument}`"))
}

/// What there is of arguments, variables, files and network.
pub fn world() -> String {
    let connect = std::net::TcpStream::connect("127.0.0.1:6379").map_err(|e| e.kind());
    format!(
        "args={} vars={} file={:?} dir={:?} write={:?} tcp={:?}",
        std::env::args().count(),
        std::env::vars().count(),
        std::fs::read("/etc/passwd").map_err(|e| e.kind()),
        std::fs::read_dir(".").map(|_| ()).map_err(|e| e.kind()),
        std::fs::write("/tmp/x", "x").map_err(|e| e.kind()),
        connect.map(|_| ()),
    )
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        for i in 0..10_000 {
            black_box(i);
        }
    }
}

fn grow(mebibytes: usize) {
    let held: Vec<Vec<u8>> = (0..mebibytes).map(|_| vec![1; 1 << 20]).collect();
    black_box(held);
}

/// Only the call stack grows, not the one in linear memory.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    (recurse(depth - 1) ^ depth).wrapping_mul(3)
}

#[inline(never)]
fn recurse_host(depth: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    (recurse_host(depth - 1) ^ system::now()).wrapping_mul(3)
}

fn copy(mebibytes: usize) {
    let mut memory = vec![1_u8; mebibytes << 20];
    let half = memory.len() / 2;
    loop {
        memory.copy_within(..half, half);
        black_box(&mut memory);
    }
}

/// The host's functions, called directly: those of Rust's library use the stack in linear memory, too.
#[cfg(target_env = "p2")]
mod system {
    use std::hint::black_box;

    use wasip2::clocks::monotonic_clock::{self, Pollable};
    use wasip2::random::random::get_random_bytes;

    pub fn now() -> u64 {
        monotonic_clock::now()
    }

    pub fn random(bytes: u64) {
        black_box(get_random_bytes(bytes));
    }

    pub fn handles(count: u64) -> Vec<Pollable> {
        (0..count)
            .map(|_| monotonic_clock::subscribe_duration(u64::MAX))
            .collect()
    }
}

#[cfg(target_env = "p1")]
mod system {
    use std::hint::black_box;
    use std::ptr::addr_of_mut;

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
        fn random_get(buffer: *mut u8, length: usize) -> u32;
    }

    const MONOTONIC: u32 = 1;

    pub fn now() -> u64 {
        static mut TIME: u64 = 0;
        // SAFETY: the guest has one thread, and the host writes eight bytes.
        unsafe {
            clock_time_get(MONOTONIC, 0, addr_of_mut!(TIME));
            TIME
        }
    }

    pub fn random(bytes: u64) {
        let mut buffer = vec![0; usize::try_from(bytes).expect("it is an address")];
        // SAFETY: the buffer is that long.
        let status = unsafe { random_get(buffer.as_mut_ptr(), buffer.len()) };
        assert_eq!(status, 0);
        black_box(buffer);
    }
}
