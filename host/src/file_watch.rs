//! Watches a file and returns its new content when it is stable.
//!
//! The file is polled. So an atomic rename, a write in place, a changed symbolic link anywhere in the
//! path (how Kubernetes mounts configuration) and a network file system all work, at the cost of one
//! `stat` per poll. A file that is being written is not read: two polls in a row and the read must find
//! the same state.
//!
//! Content that equals the last content is not a change, even if the file was written again or was
//! missing.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

/// The time between two polls.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// The number of failed polls before an error is returned: a file that is replaced by hand is missing
/// for a moment.
const MISSES: u32 = 8;
/// A file that changed within this time before it was read is read again: the clocks of file systems
/// are coarse, and a later change may have the same time.
const COARSE: Duration = Duration::from_secs(1);

/// A change of a watched file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The file has this new content.
    Content(Vec<u8>),
    /// The file is readable again, with the same content as before.
    Back,
    /// The file cannot be read, for this reason. Returned once until it is readable again.
    Unreadable(String),
    /// The file is too large, with the limit. Returned once until it is readable again.
    TooLarge(String),
}

/// A watched file.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    max: u64,
    every: Duration,
    /// The digest of the last content.
    known: Option<[u8; 32]>,
    /// The state at the last read, and whether a later change would be visible.
    read: Option<(Stamp, bool)>,
    /// The state at the last poll.
    seen: Option<Stamp>,
    misses: u32,
    /// The time of the next poll.
    due: Option<Instant>,
    /// The current poll. There is only one at a time, even if the file system hangs.
    polling: Option<JoinHandle<Poll>>,
}

/// The state of a file, without its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The result of a poll.
#[derive(Debug)]
enum Poll {
    /// Nothing new.
    Nothing,
    /// The content, read while the state did not change; whether a later change would be visible.
    Read(Stamp, bool, Vec<u8>),
    /// The state differs from the last poll.
    Unstable(Stamp),
    /// The file cannot be read or is too large.
    Failed(Change),
}

impl FileWatch {
    /// Watch the file at this path, of at most `max` bytes. The first change is its current content.
    pub fn new(path: impl Into<PathBuf>, max: u64) -> Self {
        Self {
            path: path.into(),
            max,
            every: POLL_EVERY,
            known: None,
            read: None,
            seen: None,
            misses: 0,
            due: None,
            polling: None,
        }
    }

    /// Set the last content, which is not a change.
    #[must_use]
    pub fn knowing(mut self, content: &[u8]) -> Self {
        self.known = Some(Sha256::digest(content).into());
        self
    }

    /// Set the time between two polls.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Forget the last content: the current content is a change.
    pub fn forget(&mut self) {
        self.known = None;
        self.read = None;
        self.misses = 0;
    }

    /// Wait for the next change. Cancel safe.
    pub async fn changed(&mut self) -> Change {
        loop {
            let polling = if let Some(polling) = &mut self.polling {
                polling
            } else {
                let every = self.every;
                sleep_until(*self.due.get_or_insert_with(|| Instant::now() + every)).await;
                self.due = None;
                let (path, max) = (self.path.clone(), self.max);
                let (read, seen) = (self.read, self.seen);
                // A file system may hang, so poll on a blocking thread.
                let poll = spawn_blocking(move || poll(&path, max, read, seen));
                self.polling.insert(poll)
            };
            let found = polling.await.unwrap_or_else(|error| unreadable(&error));
            self.polling = None;
            if let Some(change) = self.on_poll(found) {
                return change;
            }
        }
    }

    fn on_poll(&mut self, found: Poll) -> Option<Change> {
        match found {
            Poll::Failed(change) => {
                self.seen = None;
                self.read = None;
                self.misses = self.misses.saturating_add(1);
                return (self.misses == MISSES).then_some(change);
            }
            Poll::Nothing => {}
            Poll::Unstable(stamp) => self.seen = Some(stamp),
            Poll::Read(stamp, settled, content) => {
                self.seen = Some(stamp);
                self.read = Some((stamp, settled));
                let digest = Sha256::digest(&content).into();
                let was_missing = std::mem::take(&mut self.misses) >= MISSES;
                if self.known != Some(digest) {
                    self.known = Some(digest);
                    return Some(Change::Content(content));
                }
                return was_missing.then_some(Change::Back);
            }
        }
        None
    }
}

fn poll(path: &Path, max: u64, read: Option<(Stamp, bool)>, seen: Option<Stamp>) -> Poll {
    let stamp = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return unreadable(&"is not a file"),
        Ok(metadata) => Stamp::of(&metadata),
        Err(error) => return unreadable(&error),
    };
    if read == Some((stamp, true)) {
        return Poll::Nothing;
    }
    // A file that is too large is not opened, so that each poll stays cheap.
    if stamp.size > max {
        return Poll::Failed(Change::TooLarge(too_large(max)));
    }
    if seen != Some(stamp) {
        return Poll::Unstable(stamp);
    }
    match load(path, max, stamp) {
        Ok(Some((settled, content))) => Poll::Read(stamp, settled, content),
        Ok(None) => Poll::Nothing,
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

/// The content, and whether a later change would be visible; `None` = the file changed meanwhile.
fn load(path: &Path, max: u64, stamp: Stamp) -> io::Result<Option<(bool, Vec<u8>)>> {
    let file = File::open(path)?;
    // The path may already name another file.
    if Stamp::of(&file.metadata()?) != stamp {
        return Ok(None);
    }
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
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
    // If the file's time is in the future, only the state counts.
    let age = began.map_or(i64::MAX, |now| {
        i64::try_from(now.as_secs())
            .unwrap_or(i64::MAX)
            .saturating_sub(stamp.changed.0)
    });
    let coarse = i64::try_from(COARSE.as_secs()).unwrap_or(1);
    Ok(Some((!(0..=coarse).contains(&age), content)))
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    /// The time limit of a test.
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
    async fn writes_in_place_and_renames_are_changes() {
        let (dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        content(&mut watch, b"one").await;
        fs::write(&path, "two").unwrap();
        content(&mut watch, b"two").await;
        // The same length, immediately.
        fs::write(&path, "tw0").unwrap();
        content(&mut watch, b"tw0").await;
        let other = dir.path().join("b.toml");
        fs::write(&other, "three").unwrap();
        fs::rename(&other, &path).unwrap();
        content(&mut watch, b"three").await;
    }

    #[tokio::test]
    async fn a_changed_link_to_a_directory_is_a_change() {
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
    async fn the_same_content_is_not_a_change() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        for _ in 0..3 {
            fs::write(&path, "one").unwrap();
            let waited = timeout(Duration::from_millis(40), watch.changed()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        fs::write(&path, "two").unwrap();
        content(&mut watch, b"two").await;
    }

    #[test]
    fn a_file_that_is_being_written_is_not_read() {
        let (_dir, path) = place();
        let mut file = File::create(&path).unwrap();
        let mut watch = watch(&path);
        let step = |watch: &mut FileWatch| {
            let found = poll(&path, 1000, watch.read, watch.seen);
            watch.on_poll(found)
        };
        // The file grows between two polls.
        for n in 1..20_usize {
            file.write_all(b"x").unwrap();
            assert_eq!(step(&mut watch), None, "{n}");
        }
        // Two polls in a row find the same state.
        let whole = vec![b'x'; 19];
        assert_eq!(step(&mut watch), Some(Change::Content(whole)));
    }

    #[tokio::test]
    async fn a_missing_or_too_large_file_is_reported_once() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        fs::remove_file(&path).unwrap();
        assert!(matches!(next(&mut watch).await, Change::Unreadable(_)));
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        // The file is back with the same content.
        fs::write(&path, "one").unwrap();
        assert_eq!(next(&mut watch).await, Change::Back);
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        fs::write(&path, vec![b'x'; 1001]).unwrap();
        let Change::TooLarge(reason) = next(&mut watch).await else {
            panic!("the file is too large");
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
        // The second poll reads a file at the earliest.
        for _ in 0..2 {
            let found = poll(&path, 1_000, watch.read, watch.seen);
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
    async fn a_cancelled_wait_misses_no_change() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        fs::write(&path, "two").unwrap();
        let found = timeout(TIMEOUT, async {
            loop {
                // Polled once, and cancelled.
                if let Ok(change) = timeout(Duration::ZERO, watch.changed()).await {
                    return change;
                }
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(found.await.unwrap(), Change::Content(b"two".to_vec()));
    }

    #[tokio::test]
    async fn only_one_poll_runs_at_a_time() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        let (end, hangs) = std::sync::mpsc::sync_channel::<()>(1);
        watch.polling = Some(spawn_blocking(move || {
            assert!(hangs.recv().is_err());
            Poll::Nothing
        }));
        for _ in 0..10 {
            let waited = timeout(Duration::from_millis(10), watch.changed()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        drop(end);
        content(&mut watch, b"one").await;
    }

    #[tokio::test]
    async fn forgotten_content_is_a_change() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        watch.forget();
        content(&mut watch, b"one").await;
    }
}
