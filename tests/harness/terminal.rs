//! A command on a terminal of its own: what it draws, and what a user types.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::redis::PATIENCE;

const SIZE: Winsize = Winsize {
    ws_row: 40,
    ws_col: 120,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A command that runs on a terminal; killed when dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Start a prepared command with the terminal as its stdin and its stderr, and as its stdout.
    pub fn spawn(command: Command) -> Self {
        Self::start(command, None)
    }

    /// The same with its stdout elsewhere, as behind `> file`.
    pub fn spawn_into(command: Command, stdout: File) -> Self {
        Self::start(command, Some(stdout))
    }

    fn start(mut command: Command, stdout: Option<File>) -> Self {
        let pair = openpty(&SIZE, None).expect("a terminal can be made");
        let other = || pair.slave.try_clone().expect("it can be shared");
        command.env("TERM", "xterm").stdin(other()).stderr(other());
        match stdout {
            Some(file) => command.stdout(file),
            None => command.stdout(Stdio::from(other())),
        };
        let child = command.spawn().expect("the command can be started");
        // The reader sees the end when no process holds the other side any more.
        drop(command);
        drop(pair.slave);
        let drawn = Arc::<Mutex<Vec<u8>>>::default();
        let keyboard = File::from(pair.master);
        let screen = keyboard.try_clone().expect("it can be shared");
        let kept = Arc::clone(&drawn);
        std::thread::spawn(move || keep(screen, &kept));
        Self {
            child,
            keyboard,
            drawn,
        }
    }

    /// What it has drawn so far, in its order: each movement of the cursor and each change of a
    /// colour is a blank, and blanks are one.
    pub fn text(&self) -> String {
        let drawn = self.raw();
        let mut text = String::new();
        let mut rest = drawn.as_str();
        while let Some(escape) = rest.find('\u{1b}') {
            text.push_str(&rest[..escape]);
            text.push(' ');
            rest = &rest[escape + 1..];
            // `ESC [ parameters letter`, or `ESC letter`.
            let sequence = rest.strip_prefix('[').unwrap_or("");
            let end = sequence.find(|c: char| ('@'..='~').contains(&c));
            let length = end.map_or(1, |end| end + 2);
            rest = rest.get(length..).unwrap_or("");
        }
        text.push_str(rest);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The same as it came.
    pub fn raw(&self) -> String {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&drawn).into_owned()
    }

    /// Wait until it has drawn this.
    pub fn shows(&mut self, what: &str) {
        self.until(what, |text| text.contains(what));
    }

    /// Wait until its output is such.
    pub fn until(&mut self, what: &str, is_such: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        let mut ended = None;
        while !is_such(&self.text()) {
            if self.child.try_wait().expect("it can be asked").is_some() {
                ended.get_or_insert_with(Instant::now);
            }
            // Its last output may still be on its way here.
            let is_late = ended.is_some_and(|at| at.elapsed() > Duration::from_secs(5));
            assert!(
                !is_late && begun.elapsed() < PATIENCE,
                "`{what}` was never drawn:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Type this.
    pub fn types(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    /// Send it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("it still runs");
    }

    /// Wait for its end: its exit code.
    pub fn end(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < PATIENCE, "it runs on:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Read until no process draws any more.
fn keep(mut screen: File, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = screen.read(&mut chunk) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&chunk[..length]);
    }
}
