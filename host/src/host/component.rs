//! The handler's file: read, compiled, loaded.

use std::path::{Path, PathBuf};

use crate::compiler;
use crate::config::Config;
use crate::host::Error;
use crate::rollout::verify;
use crate::sandbox::{Compiler, Sandbox, Settings};

/// Read a component's file, of at most `max` bytes.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    compiler::read(path, max).map_err(|error| Error::load(path, &error))
}

/// Load a component that was read from `path`. Blocks while it is compiled.
pub fn load_bytes(path: &Path, bytes: &[u8], settings: &Settings) -> Result<Sandbox, Error> {
    settings.grants.provided.check().map_err(Error::Grants)?;
    let settings = Settings {
        compiler: compiler()?,
        ..settings.clone()
    };
    Sandbox::load_bytes(bytes, &settings).map_err(|error| Error::load(path, &error))
}

/// Read and load a component. Blocks while it is compiled.
pub fn load(path: &Path, settings: &Settings) -> Result<Sandbox, Error> {
    let bytes = read(path, settings.limits.component)?;
    load_bytes(path, &bytes, settings)
}

/// Load the handler of a configuration; check its digest, and run its self-tests. Also returns the
/// bytes of its file.
pub fn load_handler(config: &Config) -> Result<(Sandbox, Vec<u8>), Error> {
    let path = &config.handler.file;
    let bytes = read(path, config.sandbox.limits.component)?;
    let sandbox = load_bytes(path, &bytes, &config.sandbox)?;
    let found = sandbox.digest();
    if let Some(pinned) = &config.handler.digest
        && pinned.as_str() != &**found
    {
        return Err(Error::Digest {
            path: path.clone(),
            found: found.to_string(),
            pinned: pinned.as_str().to_owned(),
        });
    }
    let tested = verify::selftest(&sandbox, &config.swap.terms.selftests);
    tested.map_err(|refusal| Error::SelfTest {
        path: path.clone(),
        refusal,
    })?;
    Ok((sandbox, bytes))
}

/// The compiler of this process: a child that runs this very program, also if its file was replaced
/// or removed since the start.
pub fn compiler() -> Result<Compiler, Error> {
    let running = PathBuf::from("/proc/self/exe");
    let program = match running.exists() {
        true => running,
        false => std::env::current_exe()
            .map_err(Error::system("cannot find the file of this program"))?,
    };
    Ok(Compiler::Child { program })
}
