//! A writer for stderr that waits for a bounded time, and then drops lines until there is room again.
//!
//! The reader of stderr may stop reading: a stopped terminal, a log collector that hangs. The loop logs
//! too, and has leases to renew. So a line that cannot be written within [`WAIT_MAX`] is dropped and
//! counted. The lines after it are dropped at once for as long as there is no room.
//!
//! No write blocks, also where other processes write to the same pipe and fill it in the meantime: pipes
//! and sockets take `RWF_NOWAIT`, and a terminal is opened again for this process alone
//! ([`own_terminal`]). A file that cannot do that is asked for room first: files, which have room; pipes
//! before Linux 6.4; and the terminal of another user.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc::{O_NOCTTY, O_NONBLOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

/// The longest time that the lines of one [`PERIOD`] wait for the reader, all together.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A reader that is always slow costs [`WAIT_MAX`] in each period.
const PERIOD: Duration = Duration::from_secs(1);

/// A pipe with any room takes this number of bytes without blocking: `PIPE_BUF` of Linux.
const CHUNK: usize = 4096;

/// The state of a reader, shared by all its writers.
#[derive(Debug)]
pub(super) struct Reader {
    state: Mutex<State>,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// There was no room for the last line.
    is_stalled: bool,
    /// The last line was cut: the next one must begin on a new line.
    is_cut: bool,
    /// The begin of this period, and how long lines have waited in it.
    period: Option<Instant>,
    waited: Duration,
}

impl State {
    /// How long this line may wait.
    fn wait_max(&mut self, now: Instant) -> Duration {
        if self
            .period
            .is_none_or(|begin| now.duration_since(begin) >= PERIOD)
        {
            self.period = Some(now);
            self.waited = Duration::ZERO;
        }
        if self.is_stalled {
            Duration::ZERO
        } else {
            WAIT_MAX.saturating_sub(self.waited)
        }
    }
}

impl Reader {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                is_stalled: false,
                is_cut: false,
                period: None,
                waited: Duration::ZERO,
            }),
            dropped: AtomicU64::new(0),
        }
    }

    /// How many lines were dropped, or cut.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Writes whole lines to `out`, one thread at a time.
pub(super) struct BoundedWriter<'a, W> {
    out: W,
    reader: &'a Reader,
}

impl<'a, W: AsFd> BoundedWriter<'a, W> {
    pub(super) const fn new(out: W, reader: &'a Reader) -> Self {
        Self { out, reader }
    }

    /// Write some of these bytes; `None` = there was no room until then.
    fn write_until(&self, bytes: &[u8], until: Instant) -> io::Result<Option<usize>> {
        loop {
            match write_now(&self.out, bytes) {
                Ok(written) => return Ok(Some(written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || !has_room(&self.out, left)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<W: AsFd> Write for BoundedWriter<'_, W> {
    /// Reports every line as written whole, a dropped one too.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let reader = self.reader;
        let mut state = reader.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = now + state.wait_max(now);
        let begin: &[u8] = if state.is_cut { b"\n" } else { b"" };
        for (place, chunk) in [begin].into_iter().chain(line.chunks(CHUNK)).enumerate() {
            let mut rest = chunk;
            while !rest.is_empty() {
                let Some(written) = self.write_until(rest, until)? else {
                    reader.dropped.fetch_add(1, Ordering::Relaxed);
                    state.is_stalled = true;
                    // A line is cut only if its first bytes were written.
                    state.is_cut |= place > 1 || (place == 1 && rest.len() < chunk.len());
                    return Ok(line.len());
                };
                rest = rest.get(written..).unwrap_or_default();
                state.is_cut = false;
            }
        }
        state.waited += now.elapsed();
        state.is_stalled = false;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Write some of these bytes without blocking; [`Errno::AGAIN`] = there is no room now.
fn write_now(out: &impl AsFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    // The greatest offset means: at the current position.
    let written = pwritev2(
        out,
        &[IoSlice::new(bytes)],
        u64::MAX,
        ReadWriteFlags::NOWAIT,
    );
    match written {
        // Files and terminals cannot do it.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => match has_room(out, Duration::ZERO) {
            Ok(true) => rustix::io::write(out, bytes),
            Ok(false) => Err(Errno::AGAIN),
            Err(_) => Err(Errno::IO),
        },
        written => written,
    }
}

/// Whether anything can be written, after this time at most. Also true if the reader is gone: writing
/// then returns the error.
fn has_room(out: &impl AsFd, within: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        // The caller asks again for as long as it may wait.
        Err(nix::errno::Errno::EINTR) => Ok(!within.is_zero()),
        Err(error) => Err(error.into()),
    }
}

/// The terminal behind stderr, opened for this process alone: writing to it never blocks, and other
/// processes on the terminal do not notice. `None` if it cannot be opened: it belongs to another user.
pub(super) fn own_terminal() -> Option<File> {
    let mut options = File::options();
    options.write(true).custom_flags(O_NONBLOCK | O_NOCTTY);
    options.open("/proc/self/fd/2").ok()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Read, pipe};
    use std::sync::{Arc, Barrier, mpsc};

    use super::*;

    /// Lines of this many bytes until one is dropped; returns how many were taken.
    fn fill(out: &PipeWriter, reader: &Reader, line: &[u8]) -> usize {
        let mut taken = 0;
        while reader.dropped() == 0 {
            let mut writer = BoundedWriter::new(out.try_clone().unwrap(), reader);
            writer.write_all(line).unwrap();
            taken += 1;
            assert!(taken < 1 << 20, "a pipe has an end");
        }
        taken - 1
    }

    #[test]
    fn lines_without_a_reader_are_dropped_and_counted_until_it_reads_again() {
        let (mut pipe_end, out) = pipe().unwrap();
        let reader = Reader::new();
        let taken = fill(&out, &reader, b"a line\n");
        assert!(taken > 0);
        // From now on no writer waits.
        let begun = Instant::now();
        for _ in 0..1_000 {
            let mut writer = BoundedWriter::new(out.try_clone().unwrap(), &reader);
            writer.write_all(b"lost\n").unwrap();
        }
        assert_eq!(reader.dropped(), 1_001);
        assert!(begun.elapsed() < WAIT_MAX * 1_000, "each waited");

        let mut held = vec![0; taken * 7];
        pipe_end.read_exact(&mut held).unwrap();
        assert!(held.chunks(7).all(|line| line == b"a line\n"));
        let mut writer = BoundedWriter::new(out, &reader);
        writer.write_all(b"back\n").unwrap();
        drop(writer);
        let mut rest = String::new();
        pipe_end.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "back\n");
        assert_eq!(reader.dropped(), 1_001);
    }

    #[test]
    fn a_long_line_that_is_cut_ends_before_the_next_one() {
        let (mut pipe_end, out) = pipe().unwrap();
        let reader = Reader::new();
        // More than a pipe holds: its first chunks are written, the others are not.
        let mut writer = BoundedWriter::new(out.try_clone().unwrap(), &reader);
        let mut long = vec![b'x'; 4 << 20];
        long.push(b'\n');
        writer.write_all(&long).unwrap();
        assert_eq!(reader.dropped(), 1);
        let mut some = vec![0; 2 * CHUNK];
        pipe_end.read_exact(&mut some).unwrap();
        writer.write_all(b"next\n").unwrap();
        drop((writer, out));
        let mut rest = String::new();
        pipe_end.read_to_string(&mut rest).unwrap();
        let (cut, next) = rest.split_once('\n').unwrap();
        assert!(cut.bytes().all(|byte| byte == b'x'));
        assert_eq!(next, "next\n");
    }

    /// Processes that share a pipe do not know of each other.
    #[test]
    fn several_writers_on_one_pipe_never_wait_for_its_reader() {
        const WRITERS: usize = 4;
        let (mut pipe_end, out) = pipe().unwrap();
        let page = [b'x'; CHUNK];
        fill(&out, &Reader::new(), &page);
        for round in 0..500 {
            // Room for one of them.
            pipe_end.read_exact(&mut [0; CHUNK]).unwrap();
            let start = Arc::new(Barrier::new(WRITERS));
            let (done, ended) = mpsc::sync_channel(WRITERS);
            for _ in 0..WRITERS {
                let (out, start, done) = (out.try_clone().unwrap(), start.clone(), done.clone());
                std::thread::spawn(move || {
                    let reader = Reader::new();
                    // It does not wait for room.
                    reader.state.lock().unwrap().is_stalled = true;
                    let mut writer = BoundedWriter::new(out, &reader);
                    start.wait();
                    writer.write_all(&page).unwrap();
                    done.send(reader.dropped()).unwrap();
                });
            }
            let dropped = (0..WRITERS).map(|_| {
                let dropped = ended.recv_timeout(Duration::from_secs(20));
                dropped.unwrap_or_else(|_| panic!("a writer blocks in round {round}"))
            });
            assert_eq!(dropped.sum::<u64>(), WRITERS as u64 - 1);
        }
    }
}
