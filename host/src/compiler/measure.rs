//! Measures what this process uses.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// What a process uses. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    /// Private memory that the process may write to, touched or not.
    pub(super) data: u64,
    /// Resident memory.
    pub(super) resident: u64,
    /// The most that was resident so far.
    pub(super) peak: u64,
    /// Descriptors.
    pub(super) files: u64,
    /// Memory mappings.
    pub(super) mappings: u64,
}

/// The open files of the kernel from which it is read. They can be read when no file can be opened
/// any more.
pub(super) struct Meters {
    status: File,
    maps: File,
    files: Dir,
    /// Resets the peak; not every kernel has it.
    reset: Option<File>,
}

impl Meters {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            status: File::open("/proc/self/status")?,
            maps: File::open("/proc/self/maps")?,
            files: Dir::open(
                "/proc/self/fd",
                OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )?,
            reset: File::options()
                .write(true)
                .open("/proc/self/clear_refs")
                .ok(),
        })
    }

    /// The usage now, from which the peak counts.
    pub(super) fn begin(&mut self) -> io::Result<Usage> {
        if let Some(reset) = &mut self.reset {
            // Without it, only a peak above all earlier ones shows.
            drop(reset.write_all(b"5"));
        }
        self.read()
    }

    /// The usage now.
    pub(super) fn read(&mut self) -> io::Result<Usage> {
        let status = text(&mut self.status)?;
        let kib = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        let bytes = |name: &str| {
            let missing = || io::Error::other(format!("the kernel does not tell `{name}`"));
            kib(name).map(|kib| kib << 10).ok_or_else(missing)
        };
        let mappings = text(&mut self.maps)?.lines().count() as u64;
        // Each pass begins at the first entry.
        let mut files = 0;
        for entry in self.files.iter() {
            entry?;
            files += 1;
        }
        let resident = bytes("VmRSS:")?;
        Ok(Usage {
            data: bytes("VmData:")?,
            resident,
            // Not every kernel keeps it.
            peak: bytes("VmHWM:").unwrap_or(resident),
            files,
            mappings,
        })
    }
}

/// The present content of a file of the kernel.
fn text(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
