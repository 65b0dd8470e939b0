//! Compiled code on disk: what was compiled once is not compiled again.
//!
//! An entry is a file named by its [`Key`]: a magic, a digest over key and code, the code. It is
//! written beside its place and renamed into it, so that a reader sees all of it or nothing,
//! whoever else writes; and it is read whole and its digest checked in the very bytes that are run,
//! so that what a disk, a crash or anything else did to it costs a compilation and no more.
//!
//! The digest is no secret: whoever can write here as this user can run code as this user anyway.
//! So nothing of another user's is looked at, and nothing that others may write.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use super::Artifact;
use crate::sandbox::WASMTIME_VERSION;
use crate::sandbox::settings::Cache;

const MAGIC: &[u8; 16] = b"hostler code 1\r\n";
const DIGEST: usize = 32;
const HEAD: usize = MAGIC.len() + DIGEST;

/// How an entry's name ends.
const ENTRY: &str = ".code";

/// How the name of an entry that is being written ends.
const PARTIAL: &str = ".partial";

/// What was begun so long ago is not being written any more: its writer has died.
const PARTIAL_AGE: Duration = Duration::from_secs(60 * 60);

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no directory")]
    NotADirectory,
    #[error("it belongs to user {owner}, not to us ({us})")]
    Foreign { owner: u32, us: u32 },
    #[error("others may use it (its mode is {mode:03o}): run `chmod 700` on it")]
    Open { mode: u32 },
}

/// What makes code the code that is wanted.
pub(super) struct Key([u8; DIGEST]);

impl Key {
    /// The component, who compiled it, for which CPU, with which settings.
    pub(super) fn new(engine: &Engine, component: &[u8; DIGEST]) -> Self {
        let mut state = Sha(Sha256::new());
        state.0.update(component);
        WASMTIME_VERSION.hash(&mut state);
        env!("CARGO_PKG_VERSION").hash(&mut state);
        std::env::consts::ARCH.hash(&mut state);
        // The settings of the compiler, those of its target among them: the features of this CPU.
        engine.precompile_compatibility_hash().hash(&mut state);
        Self(state.0.finalize().into())
    }

    fn name(&self) -> String {
        let mut name: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(ENTRY);
        name
    }
}

/// Feeds what is hashed to SHA-256.
struct Sha(Sha256);

impl Hasher for Sha {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the whole digest is taken")
    }
}

/// The directory, once it was found to be ours alone.
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
            return Err(Error::NotADirectory);
        }
        ours(&found)?;
        Ok(Self {
            path: cache.dir.clone(),
            max_bytes: cache.max_bytes,
        })
    }

    /// The entry of this key, if it is there, and whole, and not larger than code may be.
    pub(super) fn get(&self, key: &Key, code_max: u64) -> Option<Artifact> {
        let path = self.path.join(key.name());
        match read(&path, key, code_max.saturating_add(HEAD as u64)) {
            Ok(artifact) => Some(artifact),
            Err(Refused::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(refused) => {
                let path = path.display();
                tracing::warn!(%path, reason = %refused, "kept code is not used: compiling again");
                None
            }
        }
    }

    /// Whether there is an entry of this key, whatever is in it.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.path.join(key.name()).is_file()
    }

    /// Keep this code. That it could not be kept is told, and nothing more.
    pub(super) fn put(&self, key: &Key, code: &[u8]) {
        let size = (HEAD as u64).saturating_add(code.len() as u64);
        if size > self.max_bytes {
            tracing::debug!(size, max = self.max_bytes, "code is too large to be kept");
            return;
        }
        let kept = self
            .evict(self.max_bytes - size)
            .and_then(|()| self.write(key, code))
            // Others may have written at the same time.
            .and_then(|()| self.evict(self.max_bytes));
        if let Err(error) = kept {
            let dir = self.path.display();
            tracing::warn!(%dir, reason = %error, "compiled code is not kept");
        }
    }

    fn write(&self, key: &Key, code: &[u8]) -> io::Result<()> {
        let name = key.name();
        // Not by process ids: hosts in several containers may share a directory, and be 1 each.
        let random = fastrand::u64(..);
        let partial = self.path.join(format!("{name}.{random:016x}{PARTIAL}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)?;
        // Not synced: what a crash leaves of it has another digest.
        let written = file
            .write_all(MAGIC)
            .and_then(|()| file.write_all(&digest(key, code)))
            .and_then(|()| file.write_all(code))
            .and_then(|()| fs::rename(&partial, self.path.join(name)));
        if written.is_err() {
            drop(fs::remove_file(&partial));
        }
        written
    }

    /// Remove what was not used for longest, until all files together have at most `most` bytes.
    fn evict(&self, most: u64) -> io::Result<()> {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        let mut total: u64 = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_partial = ends_with(&name, PARTIAL);
            if !is_partial && !ends_with(&name, ENTRY) {
                // Not ours: neither counted nor touched.
                continue;
            }
            // Gone meanwhile: another host makes room, too.
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

/// Whether nobody else may have a hand in it.
fn ours(found: &Metadata) -> Result<(), Error> {
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

/// Why an entry is not used.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no file")]
    NotAFile,
    #[error("{0}")]
    NotOurs(#[from] Error),
    #[error("it is damaged")]
    Damaged,
}

fn read(path: &Path, key: &Key, most: u64) -> Result<Artifact, Refused> {
    let mut file = OpenOptions::new()
        .read(true)
        // Neither a way to somewhere else, nor a pipe that waits for a writer.
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Refused::NotAFile);
    }
    ours(&found)?;
    let size = usize::try_from(found.len()).map_err(|_| Refused::Damaged)?;
    if found.len() > most || size < HEAD {
        return Err(Refused::Damaged);
    }
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes)?;
    let (head, code) = bytes.split_at(HEAD);
    if &head[..MAGIC.len()] != MAGIC || head[MAGIC.len()..] != digest(key, code) {
        return Err(Refused::Damaged);
    }
    used(&file);
    Artifact::new(bytes, HEAD..size).ok_or(Refused::Damaged)
}

/// Say that an entry was used. If that fails it goes early, which costs a compilation.
fn used(file: &File) {
    drop(file.set_modified(SystemTime::now()));
}

fn digest(key: &Key, code: &[u8]) -> [u8; DIGEST] {
    let mut state = Sha256::new();
    state.update(key.0);
    state.update(code);
    state.finalize().into()
}
