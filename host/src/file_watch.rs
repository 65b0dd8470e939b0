//! Noticing that a file has changed: its new content, once it is stable.
//!
//! The file is looked at, not subscribed to. So an atomic rename, a write in place, the flip of a
//! symbolic link anywhere in its path (how Kubernetes mounts configuration) and a network file
//! system are all seen alike, at the cost of one `stat` per look. A file that is being written is
//! waited for: it counts once two looks in a row and the reading in between find the same.
//!
//! What the reader makes of the content is its own affair; content that is the same as before is
//! no change, however often it is written, and however long it was away.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(250);
/// At how many looks a file must have been unreadable until that is told: a file that is replaced
/// by hand is gone for a moment.
const MISSES: u32 = 8;
/// A file that was changed so shortly before it was read may change again without a trace: the
/// clocks of file systems are coarse. It is read again.
const COARSE: Duration = Duration::from_secs(1);

/// What became of a watched file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Its content is another one: this.
    Content(Vec<u8>),
    /// It can be read again, which it could not, and its content is what it was.
    Back,
    /// It cannot be read, and why; told once, until it can be read again.
    Unreadable(String),
    /// It is larger than is read; told as often.
    TooLarge(String),
}

/// A file that is watched.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    max: u64,
    every: Duration,
    /// The digest of the content that is known.
    known: Option<[u8; 32]>,
    /// What was found at the last reading, and whether a change since would show.
    read: Option<(Stamp, bool)>,
    /// What the last look found.
    seen: Option<Stamp>,
    misses: u32,
    /// When the next look is due.
    due: Option<Instant>,
    /// The look that is under way. There is never a second one, however long a file system takes.
    looking: Option<JoinHandle<Look>>,
}

/// What tells one state of a file from another, short of its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a look found.
#[derive(Debug)]
enum Look {
    /// Nothing to report yet.
    Nothing,
    /// The content, read while nothing changed.
    Read(Stamp, bool, Vec<u8>),
    /// It is not what it was at the last look.
    Restless(Stamp),
    /// There is nothing that can be taken: this is to be told.
    Failed(Change),
}

impl FileWatch {
    /// Watch the file of this path, of at most `max` bytes. Nothing of it is known yet: the first
    /// change is what it holds.
    pub fn new(path: impl Into<PathBuf>, max: u64) -> Self {
        Self {
            path: path.into(),
            max,
            every: EVERY,
            known: None,
            read: None,
            seen: None,
            misses: 0,
            due: None,
            looking: None,
        }
    }

    /// This content is known: it is no change.
    #[must_use]
    pub fn knowing(mut self, content: &[u8]) -> Self {
        self.known = Some(Sha256::digest(content).into());
        self
    }

    /// Look so often.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Nothing of it is known any more: what it holds is a change.
    pub fn forget(&mut self) {
        self.known = None;
        self.read = None;
        self.misses = 0;
    }

    /// Wait for the next change. May be given up at any time, however often: nothing is missed, and
    /// a look that is under way goes on.
    pub async fn changed(&mut self) -> Change {
        loop {
            let looking = if let Some(looking) = &mut self.looking {
                looking
            } else {
                let every = self.every;
                sleep_until(*self.due.get_or_insert_with(|| Instant::now() + every)).await;
                self.due = None;
                let (path, max) = (self.path.clone(), self.max);
                let (read, seen) = (self.read, self.seen);
                // A file system may hang; nobody else waits for it.
                let look = spawn_blocking(move || look(&path, max, read, seen));
                self.looking.insert(look)
            };
            let found = looking.await.unwrap_or_else(|error| unreadable(&error));
            self.looking = None;
            if let Some(change) = self.take(found) {
                return change;
            }
        }
    }

    fn take(&mut self, found: Look) -> Option<Change> {
        match found {
            Look::Failed(change) => {
                self.seen = None;
                self.read = None;
                self.misses = self.misses.saturating_add(1);
                return (self.misses == MISSES).then_some(change);
            }
            Look::Nothing => {}
            Look::Restless(stamp) => self.seen = Some(stamp),
            Look::Read(stamp, settled, content) => {
                self.seen = Some(stamp);
                self.read = Some((stamp, settled));
                let digest = Sha256::digest(&content).into();
                let was_lost = std::mem::take(&mut self.misses) >= MISSES;
                if self.known != Some(digest) {
                    self.known = Some(digest);
                    return Some(Change::Content(content));
                }
                return was_lost.then_some(Change::Back);
            }
        }
        None
    }
}

fn look(path: &Path, max: u64, read: Option<(Stamp, bool)>, seen: Option<Stamp>) -> Look {
    let stamp = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return unreadable(&"is no file"),
        Ok(metadata) => Stamp::of(&metadata),
        Err(error) => return unreadable(&error),
    };
    if read == Some((stamp, true)) {
        return Look::Nothing;
    }
    // Not even opened: as long as it is that large, a look stays as cheap as any other.
    if stamp.size > max {
        return Look::Failed(Change::TooLarge(too_large(max)));
    }
    if seen != Some(stamp) {
        return Look::Restless(stamp);
    }
    match load(path, max, stamp) {
        Ok(Some((settled, content))) => Look::Read(stamp, settled, content),
        Ok(None) => Look::Nothing,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Look::Failed(Change::TooLarge(error.to_string()))
        }
        Err(error) => unreadable(&error),
    }
}

fn unreadable(why: &dyn fmt::Display) -> Look {
    Look::Failed(Change::Unreadable(why.to_string()))
}

fn too_large(max: u64) -> String {
    format!("is larger than {max} bytes")
}

/// The content, and whether a change since would show; `None` if it changed meanwhile.
fn load(path: &Path, max: u64, stamp: Stamp) -> io::Result<Option<(bool, Vec<u8>)>> {
    let file = File::open(path)?;
    // What was opened may be another file already.
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
    // A time ahead of our clock says nothing: then the stamp must do.
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

    /// A test that hangs says so.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn watch(path: &Path) -> FileWatch {
        FileWatch::new(path, 1000).every(Duration::from_millis(5))
    }

    fn place() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        (dir, path)
    }

    async fn next(watch: &mut FileWatch) -> Change {
        timeout(PATIENCE, watch.changed()).await.unwrap()
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
    async fn the_flip_of_a_link_is_seen_also_of_a_directory() {
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
    async fn the_same_again_is_no_change() {
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
    fn what_is_being_written_is_waited_for() {
        let (_dir, path) = place();
        let mut file = File::create(&path).unwrap();
        let mut watch = watch(&path);
        let step = |watch: &mut FileWatch| {
            let found = look(&path, 1000, watch.read, watch.seen);
            watch.take(found)
        };
        // Each look finds it longer than the look before.
        for n in 1..20_usize {
            file.write_all(b"x").unwrap();
            assert_eq!(step(&mut watch), None, "{n}");
        }
        // A look that finds what the look before has found.
        let whole = vec![b'x'; 19];
        assert_eq!(step(&mut watch), Some(Change::Content(whole)));
    }

    #[tokio::test]
    async fn a_file_that_is_gone_or_too_large_is_told_once() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        fs::remove_file(&path).unwrap();
        assert!(matches!(next(&mut watch).await, Change::Unreadable(_)));
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        // It is told that it is back; as it is what it was, that is no other content.
        fs::write(&path, "one").unwrap();
        assert_eq!(next(&mut watch).await, Change::Back);
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
    async fn what_is_too_large_is_known_by_its_size_and_never_read() {
        let (_dir, path) = place();
        File::create(&path).unwrap().set_len(1_001).unwrap();
        let mut watch = watch(&path);
        // A file is read by the second look at the earliest.
        for _ in 0..2 {
            let found = look(&path, 1_000, watch.read, watch.seen);
            assert!(
                matches!(found, Look::Failed(Change::TooLarge(_))),
                "{found:?}"
            );
            assert_eq!(watch.take(found), None);
        }
        assert!(matches!(next(&mut watch).await, Change::TooLarge(_)));
        fs::write(&path, "one").unwrap();
        content(&mut watch, b"one").await;
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_time_and_again_misses_nothing() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        fs::write(&path, "two").unwrap();
        let found = timeout(PATIENCE, async {
            loop {
                // Asked once, and given up at once.
                if let Ok(change) = timeout(Duration::ZERO, watch.changed()).await {
                    return change;
                }
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(found.await.unwrap(), Change::Content(b"two".to_vec()));
    }

    #[tokio::test]
    async fn a_look_that_lasts_is_the_only_one() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path);
        let (end, hangs) = std::sync::mpsc::sync_channel::<()>(1);
        watch.looking = Some(spawn_blocking(move || {
            assert!(hangs.recv().is_err());
            Look::Nothing
        }));
        for _ in 0..10 {
            let waited = timeout(Duration::from_millis(10), watch.changed()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        drop(end);
        content(&mut watch, b"one").await;
    }

    #[tokio::test]
    async fn what_is_forgotten_is_a_change_again() {
        let (_dir, path) = place();
        fs::write(&path, "one").unwrap();
        let mut watch = watch(&path).knowing(b"one");
        let waited = timeout(Duration::from_millis(60), watch.changed()).await;
        assert!(waited.is_err(), "{waited:?}");
        watch.forget();
        content(&mut watch, b"one").await;
    }
}
