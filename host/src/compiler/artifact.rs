//! Compiled code. Only this file makes it ready to run.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Code that this version of hostler compiled.
pub(super) struct Artifact {
    bytes: Vec<u8>,
    code: Range<usize>,
    /// The code in a [`sealed`] file; `None` = the system has no such files.
    file: OnceLock<Option<File>>,
}

impl Artifact {
    /// Code in `bytes[code]`, or `None` if the range is too long. The code must come from a compiler of
    /// this program: in this process, from a child over a pipe, or from the cache, after the digest of
    /// these bytes was checked.
    pub(super) fn new(bytes: Vec<u8>, code: Range<usize>) -> Option<Self> {
        bytes.get(code.clone())?;
        let file = OnceLock::new();
        Some(Self { bytes, code, file })
    }

    /// [`Artifact::new`] for `bytes` that are only code.
    pub(super) fn whole(bytes: Vec<u8>) -> Self {
        let code = 0..bytes.len();
        let file = OnceLock::new();
        Self { bytes, code, file }
    }

    /// The code.
    pub(super) fn code(&self) -> &[u8] {
        &self.bytes[self.code.clone()]
    }

    /// Load the code into an engine with the same compiler settings. Engines that load the same artifact
    /// share its memory.
    #[expect(
        unsafe_code,
        reason = "wasmtime runs the code that it deserializes, so only this function does it"
    )]
    pub(super) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        let file = self.file.get_or_init(|| sealed(self.code()).ok());
        // SAFETY: the bytes come from `Engine::precompile_component` of this program, see `new`.
        // They have been in private memory since they were checked: the private fields are never
        // written again, and no process can write to the file.
        unsafe {
            match file {
                Some(file) => Component::deserialize_file(engine, path(file)),
                None => Component::deserialize(engine, self.code()),
            }
        }
    }
}

/// A file in memory, with these bytes, that no process can change: neither this process nor one that
/// opens it below `/proc`. An error also where it cannot be opened there, as in the process that
/// compiles.
fn sealed(bytes: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let mut file = File::from(memfd_create("hostler-code", flags)?);
    File::open(path(&file))?;
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

fn path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_cannot_be_changed() {
        let file = sealed(b"code").unwrap();
        let again = File::options().write(true).open(path(&file));
        for mut file in [Ok(file), again].into_iter().flatten() {
            assert!(file.write_all(b"more").is_err());
            assert!(file.set_len(0).is_err());
            assert!(file.set_len(10).is_err());
        }
    }
}
