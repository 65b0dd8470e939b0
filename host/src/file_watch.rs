//! Watches one file, and reports its new content once it is stable.
//!
//! The file is polled, not subscribed to by `inotify`. So an atomic rename, a write in place, the flip
//! of a symbolic link anywhere in its path (how Kubernetes mounts configuration) and a network file
//! system are all seen alike, at the cost of one `stat` per poll. A file that is being written is not
//! reported yet: two polls in a row, and the read between them, must find the same state. Half of a text may be
//! right for itself: a file of text must also have rested for [`REST`].
//!
//! The same content as before is not a change, also if the file was written again or was missing.

use std::fmt;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use crate::regular_file;

/// Between two polls.
const EVERY: Duration = Duration::from_millis(250);
/// After this many polls in a row, an unreadable file is reported: a file that is replaced by hand is
/// missing for a moment.
const MISSES: u32 = 8;
/// The clocks of file systems are coarse. A file that was read within this time of its last change may
/// change again with the same timestamp: it is read again.
const COARSE: Duration = Duration::from_secs(1);
/// For how long a file of text must not have changed before it is read. A writer may pause between two writes.
pub const REST: Duration = Duration::from_secs(2);

/// A change of a watched file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The file has this new content.
    Content(Vec<u8>),
    /// The file can be read again, and has the same content as before.
    Restored,
    /// The file cannot be read, and why. Reported once, until it can be read again.
    Unreadable(String),
    /// The file is too large to be read. Reported once, in the same way.
    TooLarge(String),
}

/// Watches a file.
#[derive(Debug, Default)]
pub struct FileWatch {
    path: PathBuf,
    max: u64,
    every: Duration,
    rest: Duration,
    /// The digest of the last content that was reported.
    known: Option<[u8; 32]>,
    /// The state at the last read, and whether any later change would show in it.
    read: Option<(Stamp, bool)>,
    /// The state at the last poll, and since when it is so.
    seen: Option<(Stamp, Instant)>,
    misses: u32,
    /// When the next poll is due.
    due: Option<Instant>,
    /// The poll that runs. There is never a second one, also if the file system hangs.
    polling: Option<JoinHandle<Poll>>,
}

/// The state of a file without its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The result of a poll.
#[derive(Debug)]
enum Poll {
    /// Nothing to report yet.
    Unchanged,
    /// The content, read while nothing changed.
    Read(Stamp, bool, Vec<u8>),
    /// The state differs from the last poll.
    Changing(Stamp),
    /// The file cannot be used: report this.
    Failed(Change),
}

impl FileWatch {
    /// Watch the file at this path, of at most `max` bytes. The first change is its present content.
    pub fn new(path: impl Into<PathBuf>, max: u64) -> Self {
        Self {
            path: path.into(),
            max,
            every: EVERY,
            ..Self::default()
        }
    }

    /// This content is known: it is not a change.
    #[must_use]
    pub fn with_known_content(mut self, content: &[u8]) -> Self {
        self.known = Some(Sha256::digest(content).into());
        self
    }

    /// Report a content only after it has rested for this long.
    #[must_use]
    pub fn resting(mut self, rest: Duration) -> Self {
        self.rest = rest;
        self
    }

    /// Poll this often.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Forget the content: the next change is the present content.
    pub fn forget(&mut self) {
        self.known = None;
        self.read = None;
        self.misses = 0;
    }

    /// Wait for the next change. May be cancelled at any time: nothing is missed, and a running poll
    /// goes on.
    pub async fn changed(&mut self) -> Change {
        loop {
            let polling = if let Some(polling) = &mut self.polling {
                polling
            } else {
                let every = self.every;
                sleep_until(*self.due.get_or_insert_with(|| Instant::now() + every)).await;
                self.due = None;
                // On a thread of its own: the file system may hang.
                let poll = self.next_poll();
                self.polling.insert(spawn_blocking(poll))
            };
            let found = polling.await.unwrap_or_else(|error| unreadable(&error));
            self.polling = None;
            if let Some(change) = self.on_poll(found) {
                return change;
            }
        }
    }

    /// The content of the file, once it has rested for [`REST`]; `None` = it cannot be read. `written` is called
    /// once if the file turns out to be written just now.
    pub async fn rested(path: &Path, max: u64, written: impl FnOnce()) -> Option<Vec<u8>> {
        let mut watch = Self::new(path, max).resting(REST);
        let mut written = Some(written);
        loop {
            let found = spawn_blocking(watch.next_poll()).await;
            match found.unwrap_or_else(|error| unreadable(&error)) {
                Poll::Read(_, _, content) => return Some(content),
                Poll::Failed(_) => return None,
                found => {
                    if matches!(found, Poll::Changing(_))
                        && watch.seen.is_some()
                        && let Some(written) = written.take()
                    {
                        written();
                    }
                    watch.on_poll(found);
                }
            }
            sleep_until(Instant::now() + watch.every).await;
        }
    }

    fn next_poll(&self) -> impl FnOnce() -> Poll + Send + use<> {
        let (path, max, rest) = (self.path.clone(), self.max, self.rest);
        let (read, seen) = (self.read, self.seen);
        move || poll(&path, max, rest, read, seen)
    }

    fn on_poll(&mut self, found: Poll) -> Option<Change> {
        match found {
            Poll::Failed(change) => {
                self.seen = None;
                self.read = None;
                self.misses = self.misses.saturating_add(1);
                return (self.misses == MISSES).then_some(change);
            }
            Poll::Unchanged => {}
            Poll::Changing(stamp) => self.seen = Some((stamp, Instant::now())),
            Poll::Read(stamp, settled, content) => {
                self.read = Some((stamp, settled));
                let digest = Sha256::digest(&content).into();
                let was_missing = std::mem::take(&mut self.misses) >= MISSES;
                if self.known != Some(digest) {
                    self.known = Some(digest);
                    return Some(Change::Content(content));
                }
                return was_missing.then_some(Change::Restored);
            }
        }
        None
    }
}

fn poll(
    path: &Path,
    max: u64,
    rest: Duration,
    read: Option<(Stamp, bool)>,
    seen: Option<(Stamp, Instant)>,
) -> Poll {
    let stamp = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return unreadable(&"is not a file"),
        Ok(metadata) => Stamp::of(&metadata),
        Err(error) => return unreadable(&error),
    };
    if read == Some((stamp, true)) {
        return Poll::Unchanged;
    }
    // A file that is too large is not even opened.
    if stamp.size > max {
        return Poll::Failed(Change::TooLarge(too_large(max)));
    }
    let since = seen.filter(|(seen, _)| *seen == stamp);
    let has_rested = match since {
        Some((_, since)) => since.elapsed() >= rest || stamp.age().is_some_and(|age| age >= rest),
        None => !rest.is_zero() && stamp.age().is_some_and(|age| age >= rest),
    };
    if !has_rested {
        return match since {
            Some(_) => Poll::Unchanged,
            None => Poll::Changing(stamp),
        };
    }
    match load(path, max, stamp) {
        Ok(Some((settled, content))) => Poll::Read(stamp, settled, content),
        Ok(None) => Poll::Unchanged,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Poll::Failed(Change::TooLarge(error.to_string()))
        }
        Err(error) => unreadable(&error),
    }
}

fn unreadable(why: &dyn fmt::Display) -> Poll {
    Poll::Failed(Change::Unreadable(why.to_string()))
}

fn too_large(max: u64) -> String {
    format!("is larger than {max} bytes")
}

/// The content, and whether any later change would show; `None` if it changed meanwhile.
fn load(path: &Path, max: u64, stamp: Stamp) -> io::Result<Option<(bool, Vec<u8>)>> {
    let file = regular_file::open(path)?;
    // The opened file may already be another one.
    if Stamp::of(&file.metadata()?) != stamp {
        return Ok(None);
    }
    let age = stamp.age();
    let mut content = Vec::new();
    (&file)
        .take(max.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, too_large(max)));
    }
    if Stamp::of(&file.metadata()?) != stamp {
        return Ok(None);
    }
    Ok(Some((age.is_none_or(|age| age > COARSE), content)))
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// How long ago it changed. A timestamp in the future gives no age: trust the state alone.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
        SystemTime::now()
            .duration_since(UNIX_EPOCH.checked_add(since)?)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    /// A test fails after this time.
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn watch(path: &Path) -> FileWatch {
        FileWatch::new(path, 1000).every(Duration::from_millis(5))
    }

    fn place() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        (dir, path)
    }

    async fn next(watch: &mut FileWatch) -> Change {
        timeout(TIMEOUT, watch.changed()).await.unwrap()
    }

    async fn content(watch: &mut FileWatch, expected: &[u8]) {
        assert_eq!(next(watch).await, Change::Content(expected.to_vec()));
    }

    #[tokio::test]
    async fn writes_in_place_and_renames_are_seen() {
        let (dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        content(&mut watch, b"one").await;
        fs::write(&path, "two").unwrap();
        content(&mut watch, b"two").await;
        // The same length, at once.
        fs::write(&path, "tw0").unwrap();
        content(&mut watch, b"tw0").await;
        let other = dir.path().join("b.toml");
        fs::write(&other, "three").unwrap();
        fs::rename(&other, &path).unwrap();
        content(&mut watch, b"three").await;
    }

    #[tokio::test]
    async fn a_flipped_link_to_a_directory_is_seen() {
        let (dir, _) = place();
        let at = |name: &str| dir.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.toml"), version).unwrap();
        }
        symlink("v1", at("data")).unwrap();
        symlink("data/a.toml", at("a.toml")).unwrap();
        let mut watch = watch(&at("a.toml"));
        content(&mut watch, b"v1").await;
        symlink("v2", at("data.new")).unwrap();
        fs::rename(at("data.new"), at("data")).unwrap();
        content(&mut watch, b"v2").await;
    }

    #[tokio::test]
    async fn the_same_content_again_is_not_a_change() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).with_known_content(b"one");
        for _ in 0..3 {
            fs::write(&path, "one").unwrap();
            let waited = timeout(Duration::from_millis(40), watch.changed()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        fs::write(&path, "two").unwrap();
        content(&mut watch, b"two").await;
    }

    #[test]
    fn a_file_is_not_reported_while_it_is_written() {
        let (_dir, path) = place();
        let mut file = File::create(&path).unwrap();
        let mut watch = watch(&path);
        let step = |watch: &mut FileWatch| {
            let found = watch.next_poll()();
            watch.on_poll(found)
        };
        // Each poll finds it longer than the poll before.
        for n in 1..20_usize {
            file.write_all(b"x").unwrap();
            assert_eq!(step(&mut watch), None, "{n}");
        }
        // A poll that finds the same state as the poll before.
        let whole = vec![b'x'; 19];
        assert_eq!(step(&mut watch), Some(Change::Content(whole)));
    }

    #[test]
    fn no_part_of_a_text_is_reported_however_often_its_writer_pauses() {
        const TEXT: &[u8] = b"max_len = 1000\n[dead_letter]\nkey = \"dead\"\n";
        let (_dir, path) = place();
        let mut file = File::create(&path).unwrap();
        // Longer than this test takes: so no pause of the writer is long enough.
        let mut watch = watch(&path).resting(Duration::from_secs(3600));
        let step = |watch: &mut FileWatch| {
            let found = watch.next_poll()();
            watch.on_poll(found)
        };
        for byte in TEXT {
            file.write_all(&[*byte]).unwrap();
            for _ in 0..5 {
                assert_eq!(step(&mut watch), None);
            }
        }
        // It has rested.
        watch.rest = Duration::ZERO;
        assert_eq!(step(&mut watch), Some(Change::Content(TEXT.to_vec())));
    }

    #[tokio::test]
    async fn a_missing_or_too_large_file_is_reported_once() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).with_known_content(b"one");
        fs::remove_file(&path).unwrap();
        assert!(matches!(next(&mut watch).await, Change::Unreadable(_)));
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        // The file is back, with the same content.
        fs::write(&path, "one").unwrap();
        assert_eq!(next(&mut watch).await, Change::Restored);
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        fs::write(&path, vec![b'x'; 1001]).unwrap();
        let Change::TooLarge(reason) = next(&mut watch).await else {
            panic!("it is too large");
        };
        assert!(reason.contains("1000"), "{reason}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "two").unwrap();
        content(&mut watch, b"two").await;
    }

    #[tokio::test]
    async fn a_too_large_file_is_never_read() {
        let (_dir, path) = place();
        File::create(&path).unwrap().set_len(1_001).unwrap();
        let mut watch = watch(&path);
        // A file is read by the second poll at the earliest.
        for _ in 0..2 {
            let found = watch.next_poll()();
            assert!(
                matches!(found, Poll::Failed(Change::TooLarge(_))),
                "{found:?}"
            );
            assert_eq!(watch.on_poll(found), None);
        }
        assert!(matches!(next(&mut watch).await, Change::TooLarge(_)));
        fs::write(&path, "one").unwrap();
        content(&mut watch, b"one").await;
    }

    #[tokio::test]
    async fn cancelled_waits_miss_no_change() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).with_known_content(b"one");
        fs::write(&path, "two").unwrap();
        let found = timeout(TIMEOUT, async {
            loop {
                // Polled once and cancelled.
                if let Ok(change) = timeout(Duration::ZERO, watch.changed()).await {
                    return change;
                }
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(found.await.unwrap(), Change::Content(b"two".to_vec()));
    }

    #[tokio::test]
    async fn a_slow_poll_is_the_only_one() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        let (end, hangs) = std::sync::mpsc::sync_channel::<()>(1);
        watch.polling = Some(spawn_blocking(move || {
            assert!(hangs.recv().is_err());
            Poll::Unchanged
        }));
        for _ in 0..10 {
            let waited = timeout(Duration::from_millis(10), watch.changed()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        drop(end);
        content(&mut watch, b"one").await;
    }

    #[tokio::test]
    async fn a_forgotten_content_is_a_change_again() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).with_known_content(b"one");
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        watch.forget();
        content(&mut watch, b"one").await;
    }
}
