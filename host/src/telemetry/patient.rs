//! A writer that waits a short time for its reader. If there is still no room, it drops lines until
//! there is room again.
//!
//! The reader of stderr may stop reading, for example a stopped terminal or a collector that hangs.
//! The loop also logs, and it must renew leases. So a line that cannot be written within
//! [`PATIENCE`] is dropped and counted. The lines after it are dropped at once, until there is
//! room.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The longest total wait of all lines within one [`SPELL`].
const PATIENCE: Duration = Duration::from_millis(100);

/// A reader that is always slow costs at most [`PATIENCE`] per period of this length.
const SPELL: Duration = Duration::from_secs(1);

/// Bytes that a pipe with any room takes without blocking: `PIPE_BUF` of Linux.
const CHUNK: usize = 4096;

/// The state of a reader, shared by all its writers.
#[derive(Debug)]
pub(super) struct Stall {
    state: Mutex<State>,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Whether there was no room for the last line.
    is_stalled: bool,
    /// Whether the last line was cut. The next write then begins with a line break.
    is_cut: bool,
    /// When this period began, and how long lines have waited in it.
    spell: Option<Instant>,
    waited: Duration,
}

impl State {
    /// How long this line may wait.
    fn patience(&mut self, now: Instant) -> Duration {
        if self
            .spell
            .is_none_or(|spell| now.duration_since(spell) >= SPELL)
        {
            self.spell = Some(now);
            self.waited = Duration::ZERO;
        }
        if self.is_stalled {
            Duration::ZERO
        } else {
            PATIENCE.saturating_sub(self.waited)
        }
    }
}

impl Stall {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                is_stalled: false,
                is_cut: false,
                spell: None,
                waited: Duration::ZERO,
            }),
            dropped: AtomicU64::new(0),
        }
    }

    /// The number of lines that were dropped or cut.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Writes whole lines to `out`, one thread at a time.
pub(super) struct Patient<'a, W> {
    out: W,
    stall: &'a Stall,
}

impl<'a, W: Write + AsFd> Patient<'a, W> {
    pub(super) const fn new(out: W, stall: &'a Stall) -> Self {
        Self { out, stall }
    }
}

impl<W: Write + AsFd> Write for Patient<'_, W> {
    /// Always reports the whole line as written, also when it was dropped or cut.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self
            .stall
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = now + state.patience(now);
        let begin: &[u8] = if state.is_cut { b"\n" } else { b"" };
        for (place, chunk) in [begin].into_iter().chain(line.chunks(CHUNK)).enumerate() {
            if chunk.is_empty() {
                continue;
            }
            if !has_room(&self.out, until)? {
                self.stall.dropped.fetch_add(1, Ordering::Relaxed);
                state.is_stalled = true;
                // Before its first chunk, no part of this line was written.
                state.is_cut |= place > 1;
                return Ok(line.len());
            }
            self.out.write_all(chunk)?;
            state.is_cut = false;
        }
        state.waited += now.elapsed();
        state.is_stalled = false;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether [`CHUNK`] bytes can be written without blocking. Also true if the reader is gone: the
/// write then reports this.
fn has_room(out: &impl AsFd, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, timeout) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) if !left.is_zero() => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Read, pipe};

    use super::*;

    /// Write copies of this line until one is dropped. Returns how many were written.
    fn fill(out: &PipeWriter, stall: &Stall, line: &[u8]) -> usize {
        let mut taken = 0;
        while stall.dropped() == 0 {
            let mut writer = Patient::new(out.try_clone().unwrap(), stall);
            writer.write_all(line).unwrap();
            taken += 1;
            assert!(taken < 1 << 20, "a pipe has an end");
        }
        taken - 1
    }

    #[test]
    fn lines_are_dropped_and_counted_until_the_reader_reads_again() {
        let (mut reader, out) = pipe().unwrap();
        let stall = Stall::new();
        let taken = fill(&out, &stall, b"a line\n");
        assert!(taken > 0);
        // From now on no line waits.
        let begun = Instant::now();
        for _ in 0..1_000 {
            let mut writer = Patient::new(out.try_clone().unwrap(), &stall);
            writer.write_all(b"lost\n").unwrap();
        }
        assert_eq!(stall.dropped(), 1_001);
        assert!(begun.elapsed() < PATIENCE * 1_000, "each waited");

        let mut held = vec![0; taken * 7];
        reader.read_exact(&mut held).unwrap();
        assert!(held.chunks(7).all(|line| line == b"a line\n"));
        let mut writer = Patient::new(out, &stall);
        writer.write_all(b"back\n").unwrap();
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "back\n");
        assert_eq!(stall.dropped(), 1_001);
    }

    #[test]
    fn a_cut_line_ends_before_the_next_line() {
        let (mut reader, out) = pipe().unwrap();
        let stall = Stall::new();
        // The line is longer than the pipe, so only its first chunks are written.
        let mut writer = Patient::new(out.try_clone().unwrap(), &stall);
        let mut long = vec![b'x'; 4 << 20];
        long.push(b'\n');
        writer.write_all(&long).unwrap();
        assert_eq!(stall.dropped(), 1);
        let mut some = vec![0; 2 * CHUNK];
        reader.read_exact(&mut some).unwrap();
        writer.write_all(b"next\n").unwrap();
        drop((writer, out));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let (cut, next) = rest.split_once('\n').unwrap();
        assert!(cut.bytes().all(|byte| byte == b'x'));
        assert_eq!(next, "next\n");
    }
}
