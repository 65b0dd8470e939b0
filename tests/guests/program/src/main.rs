//! A program as a handler: its input says what it does, as in the crate `script`.
//!
//! The input is a list of steps, separated by `;` or `,`. Attempt 1 takes the first step, attempt 2 the second,
//! and so on; the last one repeats. A step is a list of actions joined by `+`; the first that answers ends it.
//!
//! Answers: `ack`, `nack`, `drop:REASON`, `reply:BYTES` (that long a reason), `fail` (an error of `main`).
//!
//! Actions: those of the crate `actions`; on stderr instead of stdout `err:TEXT`, `half:TEXT`, `lines:N`; `out:TEXT`,
//! `fill:BYTES` (on stdout), `args`, `variable:NAME`, `variables` (their names), `input` (its length), `read:PATH`,
//! `list:PATH`, `write:PATH`, `open:N` (files of `/files`).

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::process::{ExitCode, exit};

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
    let number = || actions::number(name, argument) as usize;
    let drop = |reason: &str| -> ! {
        eprintln!("{reason}");
        exit(65)
    };
    match name {
        "" | "ack" => exit(0),
        "nack" => exit(75),
        "drop" => drop(argument),
        "reply" => drop(&"x".repeat(number())),
        "err" => eprintln!("{argument}"),
        "half" => eprint!("{argument}"),
        "out" => println!("{argument}"),
        "fill" => stdout()
            .write_all(&vec![b'x'; number()])
            .expect("stdout takes it"),
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
        _ => assert!(actions::act(name, argument), "no action `{name}`"),
    }
}
