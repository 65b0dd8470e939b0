//! A program as a handler: its input says what it does, as in the crate `script`.
//!
//! The input is a list of steps, separated by `;` or `,`. Attempt 1 takes the first step, attempt 2 the second,
//! and so on; the last one repeats. A step is a list of actions joined by `+`; the first that answers ends it.
//!
//! Answers: `ack`, `nack`, `drop:REASON`, `exit:CODE`, `fail` (an error of `main`).
//!
//! Actions: `err:TEXT`, `half:TEXT` (on stderr, without an end), `out:TEXT`, `fill:BYTES` (on stdout), `lines:N` (on
//! stderr), `args`, `variable:NAME`, `variables` (their names), `input` (its length), `read:PATH`, `list:PATH`, `write:PATH`,
//! `open:N` (files of `/files`), `sleep:MS`, `loop`, `grow:MIB`, `recurse`, `panic`, `trap`.

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::process::{ExitCode, exit};
use std::time::Duration;

fn main() -> ExitCode {
    let mut input = Vec::new();
    stdin().read_to_end(&mut input).expect("stdin is there");
    let variable = |name| env::var(name).unwrap_or_default();
    let attempt = variable("HOSTLER_ATTEMPT");
    eprintln!("start {} {attempt}", variable("HOSTLER_MESSAGE_ID"));
    let script = String::from_utf8_lossy(&input);
    let steps: Vec<&str> = script.split([';', ',']).map(str::trim).collect();
    let position = attempt.parse().unwrap_or(1_usize).saturating_sub(1);
    for action in steps[position.min(steps.len() - 1)].split('+') {
        let (name, argument) = action.split_once(':').unwrap_or((action, ""));
        if name == "fail" {
            return ExitCode::FAILURE;
        }
        act(name, argument, &input);
    }
    ExitCode::SUCCESS
}

fn act(name: &str, argument: &str, input: &[u8]) {
    let number = || argument.parse::<usize>().expect("a number");
    match name {
        "" | "ack" => exit(0),
        "nack" => exit(75),
        "drop" => {
            eprintln!("{argument}");
            exit(65);
        }
        "exit" => exit(i32::try_from(number()).expect("a code")),
        "err" => eprintln!("{argument}"),
        "half" => eprint!("{argument}"),
        "out" => println!("{argument}"),
        "fill" => stdout().write_all(&vec![b'x'; number()]).expect("stdout takes it"),
        "lines" => (0..number()).for_each(|n| eprintln!("line {n}")),
        "args" => eprintln!("{:?}", env::args().collect::<Vec<_>>()),
        "variable" => eprintln!("{:?}", env::var(argument).ok()),
        "variables" => {
            let mut names: Vec<String> = env::vars().map(|(name, _)| name).collect();
            names.sort();
            eprintln!("{}", names.join(" "));
        }
        "input" => eprintln!("{} bytes", input.len()),
        "read" => match fs::read_to_string(argument) {
            Ok(text) => eprintln!("{text}"),
            Err(error) => eprintln!("{error}"),
        },
        "list" => match fs::read_dir(argument) {
            Ok(entries) => {
                let entries = entries.filter_map(Result::ok);
                let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
                names.sort();
                eprintln!("{names:?}");
            }
            Err(error) => eprintln!("{error}"),
        },
        "write" => match fs::write(argument, "x") {
            Ok(()) => eprintln!("written"),
            Err(error) => eprintln!("{error}"),
        },
        "open" => {
            let path = "/files/hello";
            let open: Vec<File> = (0..number()).map_while(|_| File::open(path).ok()).collect();
            eprintln!("{} files", black_box(open).len());
        }
        "sleep" => std::thread::sleep(Duration::from_millis(number() as u64)),
        "loop" => loop {
            black_box(0);
        },
        "grow" => {
            let mut held = Vec::new();
            for _ in 0..number() {
                held.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        "recurse" => {
            black_box(recurse(1));
        }
        "panic" => panic!("asked to panic"),
        "trap" => core::arch::wasm32::unreachable(),
        _ => panic!("no action `{name}`"),
    }
}

fn recurse(depth: u64) -> u64 {
    match black_box(depth) {
        0 => 0,
        depth => recurse(depth + 1) + 1,
    }
}
