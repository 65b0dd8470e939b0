//! Whether this process may open as many descriptors as its handlers may hold, beside its own.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::grants::Providers;
use crate::host::Error;
use crate::sandbox::DESCRIPTORS;

/// What a host needs for itself: connections to Redis, to probes and to a collector, its versions, its threads.
const OWN: u64 = 256;
/// Attempts beside those of the queue: of self-tests.
const OTHER_ATTEMPTS: usize = 2;

/// Raise the limit of this process as far as it may, and compare it with what is needed at most.
///
/// # Errors
/// [`Error::Descriptors`].
pub(super) fn check(config: &Config) -> Result<(), Error> {
    let refused = Error::system("cannot read the limit of descriptors");
    let limit = || getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| refused(errno.into()));
    let (soft, hard) = limit()?;
    if soft < hard {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        raised.map_err(|errno| {
            Error::system("cannot raise the limit of descriptors")(errno.into())
        })?;
    }
    let sandbox = &config.sandbox;
    let files = sandbox.grants.files.len();
    let each = match sandbox.grants.provided.tcp.is_some() || files > 0 {
        true => DESCRIPTORS.min(sandbox.limits.handles) + files,
        false => 0,
    };
    let connections = config
        .providers
        .as_ref()
        .map_or(0, Providers::connections_max);
    let guests = (sandbox.concurrency + OTHER_ATTEMPTS) * each + connections;
    let needed = OWN + guests as u64;
    match guests == 0 || needed <= hard {
        true => Ok(()),
        false => Err(Error::Descriptors {
            concurrency: sandbox.concurrency,
            each,
            connections,
            needed,
            allowed: hard,
        }),
    }
}
