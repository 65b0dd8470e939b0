//! The sources of a handler: which files there are, and whether they have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What tools make, wherever it lies.
const MADE: [&str; 6] = [
    "target",
    "build",
    "dist",
    "node_modules",
    "zig-out",
    "__pycache__",
];
/// More files than these are no sources of one handler.
const FILES_MAX: usize = 20_000;

/// Which files there are, and in which state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Snapshot(BTreeMap<PathBuf, Stamp>);

/// What tells one state of a file from another, short of its content.
type Stamp = (u64, u64, i64, i64, i64, i64);

/// Where the sources are.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    root: PathBuf,
    /// Files that are none: the handler, and what every build writes.
    made: BTreeSet<PathBuf>,
    /// Devices and inodes of files that are none: those that this very command writes to.
    own: Vec<(u64, u64)>,
}

impl Sources {
    /// All files under this folder, without the handler's.
    pub(super) fn new(root: &Path, handler: &Path) -> Self {
        Self {
            root: root.to_owned(),
            made: [root.join(handler), handler.to_owned()].into(),
            own: own(),
        }
    }

    /// One file.
    pub(super) fn file(path: &Path) -> Self {
        Self {
            root: path.to_owned(),
            made: BTreeSet::new(),
            own: Vec::new(),
        }
    }

    /// These are made by the build: they are no sources.
    pub(super) fn without(&mut self, made: impl IntoIterator<Item = PathBuf>) {
        self.made.extend(made);
    }

    /// How they are now. What cannot be read is not there: it may be gone in a moment.
    pub(super) fn look(&self) -> Snapshot {
        let mut found = BTreeMap::new();
        if let Ok(state) = std::fs::metadata(&self.root)
            && state.is_file()
        {
            found.insert(self.root.clone(), stamp(&state));
            return Snapshot(found);
        }
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let path = entry.path();
                if name.starts_with('.') || MADE.contains(&&*name) || self.made.contains(&path) {
                    continue;
                }
                // A linked file is a source; a linked folder may lead anywhere.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                match std::fs::metadata(&path) {
                    Ok(found) if found.is_dir() && !is_link => folders.push(path),
                    Ok(state) if state.is_file() && !self.own.contains(&place(&state)) => {
                        found.insert(path, stamp(&state));
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
    /// The files that are not as they were.
    pub(super) fn changed_since(&self, before: &Self) -> BTreeSet<PathBuf> {
        let differs = |(path, stamp): &(&PathBuf, &Stamp)| before.0.get(*path) != Some(stamp);
        let changed = self.0.iter().filter(differs).map(|(path, _)| path.clone());
        let gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        changed.chain(gone.cloned()).collect()
    }
}

/// Where the output of this command goes, if it goes to files: each build would be one more change.
fn own() -> Vec<(u64, u64)> {
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

fn stamp(state: &Metadata) -> Stamp {
    (
        state.ino(),
        state.size(),
        state.mtime(),
        state.mtime_nsec(),
        state.ctime(),
        state.ctime_nsec(),
    )
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
    fn what_is_written_made_and_removed_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::write(root.join("src/a"), "1").unwrap();
        fs::write(root.join("src/deep/b"), "1").unwrap();
        fs::write(root.join("gone"), "1").unwrap();
        let sources = Sources::new(root, Path::new("handler.wasm"));
        let before = sources.look();
        assert!(sources.look().changed_since(&before).is_empty());
        fs::write(root.join("src/deep/b"), "22").unwrap();
        fs::write(root.join("new"), "1").unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        let changed = sources.look().changed_since(&before);
        assert_eq!(names(changed, root), ["gone", "new", "src/deep/b"]);
    }

    #[test]
    fn a_file_may_be_all_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("handler.wasm");
        let sources = Sources::file(&file);
        let before = sources.look();
        fs::write(&file, "1").unwrap();
        fs::write(dir.path().join("other"), "1").unwrap();
        let changed = sources.look().changed_since(&before);
        assert_eq!(names(changed, dir.path()), ["handler.wasm"]);
    }

    #[test]
    fn what_is_hidden_or_made_by_tools_is_no_source() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut sources = Sources::new(root, Path::new("handler.wasm"));
        sources.without([root.join("generated.c")]);
        let before = sources.look();
        for folder in ["target", ".hostler", "src/node_modules", "build"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("file"), "1").unwrap();
        }
        fs::write(root.join("handler.wasm"), "1").unwrap();
        fs::write(root.join("generated.c"), "1").unwrap();
        std::os::unix::fs::symlink(root, root.join("round")).unwrap();
        assert_eq!(sources.look(), before);
        fs::write(root.join("src/file"), "1").unwrap();
        let changed = sources.look().changed_since(&before);
        assert_eq!(names(changed, root), ["src/file"]);
    }
}
