//! The sources of a handler: which files there are, and which of them have changed.
//!
//! The folder is scanned, not subscribed to by `inotify`. A scan also works on mounted volumes and
//! network file systems, and compares two states:
//! the builder needs that to tell sources from files that every build writes. A subscription would
//! still need the scan for that, one watch per folder, and the same list of excluded folders.
//!
//! A file has changed if its content has: tools write files again with the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::file_watch::Stamp;

/// Folders that tools write, anywhere in the tree.
const EXCLUDED: [&str; 6] = [
    "target",
    "build",
    "dist",
    "node_modules",
    "zig-out",
    "__pycache__",
];
/// The most files that are watched.
const FILES_MAX: usize = 20_000;
/// The largest file whose content is compared. Of a larger one, every write is a change.
const CONTENT_MAX: u64 = 1 << 20;

/// The files and their state.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Snapshot(BTreeMap<PathBuf, State>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct State {
    stamp: Stamp,
    /// Of the content; `None` = it is too large, or cannot be read.
    digest: Option<[u8; 32]>,
}

/// The folder of the sources, or a single file.
#[derive(Clone, Debug)]
pub(super) struct SourceFolder {
    root: PathBuf,
    /// Files that are not sources: the handler, and files that every build writes.
    excluded: BTreeSet<PathBuf>,
    /// Devices and inodes of the files that this command writes its output to.
    outputs: Vec<(u64, u64)>,
}

impl SourceFolder {
    /// All files under this folder, without the handler's.
    pub(super) fn new(root: &Path, handler: &Path) -> Self {
        Self {
            root: root.to_owned(),
            excluded: [root.join(handler), handler.to_owned()].into(),
            outputs: outputs(),
        }
    }

    /// One file.
    pub(super) fn file(path: &Path) -> Self {
        Self {
            root: path.to_owned(),
            excluded: BTreeSet::new(),
            outputs: Vec::new(),
        }
    }

    /// Watch these files no longer.
    pub(super) fn exclude(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.excluded.extend(files);
    }

    /// The root of the folder, or the file.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The files as they are now. Only those that were touched since an earlier scan are read. Files that
    /// cannot be found are left out: they may be disappearing.
    pub(super) fn scan(&self, earlier: &Snapshot) -> Snapshot {
        let mut found = BTreeMap::new();
        if let Ok(state) = std::fs::metadata(&self.root)
            && state.is_file()
        {
            found.insert(self.root.clone(), earlier.state(&self.root, &state));
            return Snapshot(found);
        }
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let path = entry.path();
                if name.starts_with('.')
                    || EXCLUDED.contains(&&*name)
                    || self.excluded.contains(&path)
                {
                    continue;
                }
                // A link to a file is a source. A link to a folder is not followed: it may lead anywhere.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                match std::fs::metadata(&path) {
                    Ok(found) if found.is_dir() && !is_link => folders.push(path),
                    Ok(state) if state.is_file() && !self.outputs.contains(&place(&state)) => {
                        let state = earlier.state(&path, &state);
                        found.insert(path, state);
                    }
                    _ => {}
                }
                if found.len() >= FILES_MAX {
                    return Snapshot(found);
                }
            }
        }
        Snapshot(found)
    }
}

impl Snapshot {
    /// The state of a file, whose digest is known if no process has touched it since.
    fn state(&self, path: &Path, metadata: &Metadata) -> State {
        let stamp = Stamp::of(metadata);
        match self.0.get(path) {
            Some(known) if known.stamp == stamp => *known,
            _ => State {
                stamp,
                digest: digest(path, metadata.len()),
            },
        }
    }

    /// The same without these files.
    pub(super) fn without(&self, files: &BTreeSet<PathBuf>) -> Self {
        let others = self.0.iter().filter(|(path, _)| !files.contains(*path));
        Self(others.map(|(path, state)| (path.clone(), *state)).collect())
    }

    /// The files that are new, gone or changed.
    pub(super) fn changed_since(&self, before: &Self) -> BTreeSet<PathBuf> {
        let differs = |(path, now): &(&PathBuf, &State)| {
            let same = before.0.get(*path).is_some_and(|before| {
                before.stamp == now.stamp || (now.digest.is_some() && now.digest == before.digest)
            });
            !same
        };
        let changed = self.0.iter().filter(differs).map(|(path, _)| path.clone());
        let gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        changed.chain(gone.cloned()).collect()
    }
}

/// The files that stdout and stderr go to, if they do: each line would be a change.
fn outputs() -> Vec<(u64, u64)> {
    let outputs = ["/dev/stdout", "/dev/stderr"].into_iter();
    outputs
        .filter_map(|path| std::fs::metadata(path).ok())
        .filter(Metadata::is_file)
        .map(|state| place(&state))
        .collect()
}

fn place(state: &Metadata) -> (u64, u64) {
    (state.dev(), state.ino())
}

fn digest(path: &Path, size: u64) -> Option<[u8; 32]> {
    if size > CONTENT_MAX {
        return None;
    }
    let mut content = Vec::new();
    let file = File::open(path).ok()?;
    file.take(CONTENT_MAX).read_to_end(&mut content).ok()?;
    Some(Sha256::digest(&content).into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(changed: BTreeSet<PathBuf>, root: &Path) -> Vec<String> {
        let name = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
        changed.into_iter().map(name).collect()
    }

    #[test]
    fn written_new_and_removed_files_have_changed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::write(root.join("src/a"), "1").unwrap();
        fs::write(root.join("src/deep/b"), "1").unwrap();
        fs::write(root.join("gone"), "1").unwrap();
        let sources = SourceFolder::new(root, Path::new("handler.wasm"));
        let before = sources.scan(&Snapshot::default());
        assert!(sources.scan(&before).changed_since(&before).is_empty());
        fs::write(root.join("src/deep/b"), "22").unwrap();
        fs::write(root.join("new"), "1").unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        let changed = sources.scan(&before).changed_since(&before);
        assert_eq!(names(changed, root), ["gone", "new", "src/deep/b"]);
    }

    #[test]
    fn a_file_that_is_written_again_with_the_same_content_has_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let sources = SourceFolder::new(root, Path::new("handler.wasm"));
        let large = vec![b'x'; usize::try_from(CONTENT_MAX).unwrap() + 1];
        fs::write(root.join("lock"), "1").unwrap();
        fs::write(root.join("large"), &large).unwrap();
        let before = sources.scan(&Snapshot::default());
        for (file, content) in [("lock", &b"1"[..]), ("large", &large)] {
            fs::write(root.join("new"), content).unwrap();
            fs::rename(root.join("new"), root.join(file)).unwrap();
        }
        let after = sources.scan(&before);
        // The contents of large files are not compared.
        assert_eq!(names(after.changed_since(&before), root), ["large"]);
        fs::write(root.join("lock"), "2").unwrap();
        let changed = sources.scan(&after).changed_since(&after);
        assert_eq!(names(changed, root), ["lock"]);
    }

    #[test]
    fn a_single_file_is_watched_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("handler.wasm");
        let sources = SourceFolder::file(&file);
        let before = sources.scan(&Snapshot::default());
        fs::write(&file, "1").unwrap();
        fs::write(dir.path().join("other"), "1").unwrap();
        let changed = sources.scan(&before).changed_since(&before);
        assert_eq!(names(changed, dir.path()), ["handler.wasm"]);
    }

    #[test]
    fn hidden_and_excluded_files_are_not_sources() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut sources = SourceFolder::new(root, Path::new("handler.wasm"));
        sources.exclude([root.join("generated.c")]);
        let before = sources.scan(&Snapshot::default());
        for folder in ["target", ".hostler", "src/node_modules", "build"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("file"), "1").unwrap();
        }
        fs::write(root.join("handler.wasm"), "1").unwrap();
        fs::write(root.join("generated.c"), "1").unwrap();
        std::os::unix::fs::symlink(root, root.join("round")).unwrap();
        assert_eq!(sources.scan(&before), before);
        fs::write(root.join("src/file"), "1").unwrap();
        let changed = sources.scan(&before).changed_since(&before);
        assert_eq!(names(changed, root), ["src/file"]);
    }
}
