//! The cache of compiled code on disk.
//!
//! An entry is a file named by its [`Key`]: a magic number, a digest of the key and the rest, the length of the
//! [`Start`] in four bytes, the start as JSON, and the code. An entry is written to a temporary file and renamed, so that a reader sees a whole entry or none. The
//! digest is checked in the same bytes that are run, so that a damaged entry only costs a compilation.
//!
//! The digest is not a secret: a process that can write here as this user can run code as this user
//! anyway. Files of other users, and files that other users may write, are not read.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hostler_components::REVISION;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use super::{Artifact, Start};
use crate::delivery::text::hex;
use crate::sandbox::WASMTIME_VERSION;
use crate::sandbox::settings::Cache;

const MAGIC: &[u8; 16] = b"hostler code 2\r\n";
const DIGEST: usize = 32;
const LENGTH: usize = size_of::<u32>();
const HEAD: usize = MAGIC.len() + DIGEST + LENGTH;

/// Bytes of a [`Start`].
const START_MAX: usize = 16 << 10;

/// The checks that code has passed before it is cached. A change has a new number. The code that is made of a component
/// has [`REVISION`].
const CHECKS: u32 = 4;

/// The suffix of an entry.
const ENTRY: &str = ".code";

/// The suffix of a temporary file.
const PARTIAL: &str = ".partial";

/// The age at which a temporary file is removed: its writer has crashed.
const PARTIAL_AGE: Duration = Duration::from_secs(60 * 60);

/// A directory or file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is not a {0}")]
    NotA(&'static str),
    #[error("it is damaged")]
    Damaged,
    #[error("it belongs to user {owner}, but this process runs as user {us}")]
    Foreign { owner: u32, us: u32 },
    #[error("other users have access to it (mode {mode:03o}): run `chmod 700` on it")]
    Open { mode: u32 },
}

/// The key of an entry.
pub(super) struct Key([u8; DIGEST]);

impl Key {
    /// The key of a component, compiler version, CPU and settings.
    pub(super) fn new(engine: &Engine, component: &[u8; DIGEST], snapshot: bool) -> Self {
        let mut state = Sha256Hasher(Sha256::new());
        state.0.update(component);
        CHECKS.hash(&mut state);
        REVISION.hash(&mut state);
        snapshot.hash(&mut state);
        WASMTIME_VERSION.hash(&mut state);
        env!("CARGO_PKG_VERSION").hash(&mut state);
        std::env::consts::ARCH.hash(&mut state);
        // The compiler's settings, the features of this CPU among them.
        engine.precompile_compatibility_hash().hash(&mut state);
        Self(state.0.finalize().into())
    }

    fn name(&self) -> String {
        hex(&self.0) + ENTRY
    }
}

/// A [`Hasher`] that feeds SHA-256.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the whole digest is taken")
    }
}

/// A cache directory that only this user can access.
pub(super) struct Dir {
    path: PathBuf,
    max_bytes: u64,
}

impl Dir {
    pub(super) fn open(cache: &Cache) -> Result<Self, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&cache.dir)?;
        let found = fs::metadata(&cache.dir)?;
        if !found.is_dir() {
            return Err(Error::NotA("directory"));
        }
        check_owner(&found)?;
        Ok(Self {
            path: cache.dir.clone(),
            max_bytes: cache.max_bytes,
        })
    }

    /// The entry of this key, if it exists, is valid, and has at most `code_max` bytes of code.
    pub(super) fn get(&self, key: &Key, code_max: u64) -> Option<(Artifact, Start)> {
        let path = self.path.join(key.name());
        let most = code_max.saturating_add((HEAD + START_MAX) as u64);
        match read(&path, key, most) {
            Ok(entry) => Some(entry),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(unusable) => {
                let path = path.display();
                tracing::warn!(%path, reason = %unusable, "cached code is not used; compiling again");
                None
            }
        }
    }

    /// Whether an entry of this key exists. The entry is not checked.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.path.join(key.name()).is_file()
    }

    /// Store this code. An error is only logged.
    pub(super) fn put(&self, key: &Key, start: &Start, code: &[u8]) {
        let Ok(start) = serde_json::to_vec(start) else {
            return;
        };
        let size = (HEAD as u64 + start.len() as u64).saturating_add(code.len() as u64);
        if size > self.max_bytes {
            tracing::debug!(
                size,
                max = self.max_bytes,
                "compiled code is too large for the cache"
            );
            return;
        }
        let written = self
            .evict(self.max_bytes - size)
            .and_then(|()| self.write(key, &start, code))
            // Other hosts may have written at the same time.
            .and_then(|()| self.evict(self.max_bytes));
        if let Err(error) = written {
            let dir = self.path.display();
            tracing::warn!(%dir, reason = %error, "compiled code is not cached");
        }
    }

    fn write(&self, key: &Key, start: &[u8], code: &[u8]) -> io::Result<()> {
        let name = key.name();
        let length = u32::try_from(start.len())
            .map_err(io::Error::other)?
            .to_be_bytes();
        // Not the process id: hosts in several containers may share a directory, each with id 1.
        let random = fastrand::u64(..);
        let partial = self.path.join(format!("{name}.{random:016x}{PARTIAL}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)?;
        // Not synced: the digest of an entry that a crash damaged does not match.
        let written = file
            .write_all(MAGIC)
            .and_then(|()| file.write_all(&digest(key, &[&length, start, code])))
            .and_then(|()| file.write_all(&length))
            .and_then(|()| file.write_all(start))
            .and_then(|()| file.write_all(code))
            .and_then(|()| fs::rename(&partial, self.path.join(name)));
        if written.is_err() {
            drop(fs::remove_file(&partial));
        }
        written
    }

    /// Remove the least recently used entries, until all files together have at most `most` bytes.
    fn evict(&self, most: u64) -> io::Result<()> {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        let mut total: u64 = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_partial = ends_with(&name, PARTIAL);
            if !is_partial && !ends_with(&name, ENTRY) {
                // Other files are not counted and not removed.
                continue;
            }
            // Another host may have removed the file meanwhile.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let age = now.duration_since(used).unwrap_or_default();
            if is_partial && age > PARTIAL_AGE {
                drop(fs::remove_file(entry.path()));
                continue;
            }
            total = total.saturating_add(found.len());
            if !is_partial {
                entries.push((used, found.len(), entry.path()));
            }
        }
        entries.sort();
        for (_, size, path) in entries {
            if total <= most {
                break;
            }
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            total = total.saturating_sub(size);
        }
        Ok(())
    }
}

fn ends_with(name: &OsStr, end: &str) -> bool {
    name.as_encoded_bytes().ends_with(end.as_bytes())
}

/// Check that only this user can access the file or directory.
fn check_owner(found: &Metadata) -> Result<(), Error> {
    let us = geteuid().as_raw();
    if found.uid() != us {
        return Err(Error::Foreign {
            owner: found.uid(),
            us,
        });
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Open { mode });
    }
    Ok(())
}

fn read(path: &Path, key: &Key, most: u64) -> Result<(Artifact, Start), Error> {
    let mut file = OpenOptions::new()
        .read(true)
        // Do not follow a link, and do not wait for the writer of a pipe.
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Error::NotA("file"));
    }
    check_owner(&found)?;
    let size = usize::try_from(found.len()).map_err(|_| Error::Damaged)?;
    if found.len() > most || size < HEAD {
        return Err(Error::Damaged);
    }
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes)?;
    let (magic, rest) = bytes.split_at(MAGIC.len());
    let (kept, rest) = rest.split_at(DIGEST);
    if magic != MAGIC || kept != digest(key, &[rest]) {
        return Err(Error::Damaged);
    }
    let start = rest.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        serde_json::from_slice(rest.get(..length)?)
            .ok()
            .map(|start| (length, start))
    });
    let (length, start) = start.ok_or(Error::Damaged)?;
    // The entry is used now. If it cannot be marked, it is removed early, which costs a compilation.
    drop(file.set_modified(SystemTime::now()));
    let artifact = Artifact::new(bytes, HEAD + length..size).ok_or(Error::Damaged)?;
    Ok((artifact, start))
}

fn digest(key: &Key, parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut state = Sha256::new();
    state.update(key.0);
    for part in parts {
        state.update(part);
    }
    state.finalize().into()
}
