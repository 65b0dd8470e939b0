//! The `hostler` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    hostler::cli::main(std::env::args_os().collect(), std::env::vars_os().collect())
}
