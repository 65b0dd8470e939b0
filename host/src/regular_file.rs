//! Opens files that are read to their end: regular ones only. Opening a named pipe waits for a writer, and
//! reading one may wait for ever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::{EISDIR, O_NONBLOCK};

/// Open a regular file, or a link to one, for reading.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        // Do not wait for the writer of a pipe.
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(EISDIR));
    }
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_char_device() => "a device",
        () => "no file",
    };
    let what = format!("it is {what}; copy its content to a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        std::fs::write(path("file"), "content").unwrap();
        symlink("file", path("link")).unwrap();
        for name in ["file", "link"] {
            let mut text = String::new();
            let mut file = open(&path(name)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "content");
        }
        // Without a writer, opening it for reading would wait.
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        let said = |path: &Path| open(path).unwrap_err().to_string();
        let remedy = "copy its content to a regular file";
        assert_eq!(said(&path("pipe")), format!("it is a pipe; {remedy}"));
        assert_eq!(
            said("/dev/null".as_ref()),
            format!("it is a device; {remedy}")
        );
        assert_eq!(said(dir.path()), "Is a directory (os error 21)");
    }
}
