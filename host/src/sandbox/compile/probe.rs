//! What the kernel lets a process do that compiles: for tests.

use std::fs::File;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use nix::sys::signal::kill;
use nix::unistd::Pid;

/// A line for each attempt: its name, and the number of the error or `done`.
pub(super) fn report(parent: i32) -> String {
    let tried = |name: &str, result: io::Result<()>| match result {
        Ok(()) => format!("{name}: done\n"),
        Err(error) => format!("{name}: {}\n", error.raw_os_error().unwrap_or(0)),
    };
    [
        tried("tcp", TcpStream::connect("127.0.0.1:9").map(drop)),
        tried("udp", UdpSocket::bind("127.0.0.1:0").map(drop)),
        tried("unix", UnixStream::pair().map(drop)),
        tried("file", File::open("/proc/self/status").map(drop)),
        tried("program", Command::new("/bin/true").spawn().map(drop)),
        tried(
            "signal",
            kill(Pid::from_raw(parent), None).map_err(io::Error::from),
        ),
        tried("thread", std::thread::Builder::new().spawn(|| {}).map(drop)),
    ]
    .concat()
}
