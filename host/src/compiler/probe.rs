//! What the kernel lets a process do that compiles: for tests.
//!
//! Each call has arguments that do no harm if it is allowed.

use std::io;

use nix::libc::{self, c_int, c_long};

use super::confine;

/// Each call has at most this number of arguments that matter here.
type Arguments = [usize; 4];

/// `fchmodat2`, which libraries do not name yet.
const FCHMODAT2: c_long = 452;

/// A command of `fcntl` that the library does not name.
const F_SETSIG: usize = 10;

/// Numbers of calls: more than any kernel has.
const NUMBERS: c_long = 1024;

/// The kernel lets these calls pass by every filter, and ends who makes them outside of a probe of its own:
/// `uretprobe` and `uprobe`.
#[cfg(target_arch = "x86_64")]
const PROBES: std::ops::RangeInclusive<c_long> = 335..=336;
#[cfg(not(target_arch = "x86_64"))]
const PROBES: std::ops::RangeInclusive<c_long> = NUMBERS..=NUMBERS;

/// A line for each attempt: its name, and the number of the error or `done`.
pub(super) fn report(parent: i32) -> String {
    let mut report = String::new();
    let mut tried = |name: &str, result: io::Result<()>| {
        let result = match result {
            Ok(()) => "done".to_owned(),
            Err(error) => error.raw_os_error().unwrap_or(0).to_string(),
        };
        report.push_str(&format!("{name}: {result}\n"));
    };
    for (name, number, arguments) in attempts(parent.unsigned_abs() as usize) {
        tried(name, call(number, arguments));
    }
    // An ancestor of the host may have left it open.
    let left_open = [9, 0, flag(libc::SEEK_CUR), 0];
    tried("left open", call(libc::SYS_lseek, left_open));
    tried("thread", std::thread::Builder::new().spawn(|| {}).map(drop));
    report.push_str(&beside());
    report
}

/// Calls that reach beyond the process.
fn attempts(parent: usize) -> Vec<(&'static str, c_long, Arguments)> {
    let here = flag(libc::AT_FDCWD);
    let root = c"/".as_ptr().addr();
    let file = c"/proc/self/comm".as_ptr().addr();
    let (stdout, own) = (1, std::process::id() as usize);
    vec![
        (
            "socket",
            libc::SYS_socket,
            [flag(libc::AF_INET), flag(libc::SOCK_DGRAM), 0, 0],
        ),
        (
            "unix socket",
            libc::SYS_socket,
            [flag(libc::AF_UNIX), flag(libc::SOCK_DGRAM), 0, 0],
        ),
        ("io_uring", libc::SYS_io_uring_setup, [0; 4]),
        (
            "open",
            libc::SYS_openat,
            [here, file, flag(libc::O_RDONLY), 0],
        ),
        (
            "open to write",
            libc::SYS_openat,
            [here, file, flag(libc::O_WRONLY), 0],
        ),
        ("stat", libc::SYS_newfstatat, [here, root, 0, 0]),
        ("statx", libc::SYS_statx, [here, root, 0, 0]),
        ("fchmodat2", FCHMODAT2, [here, 0, 0, 0]),
        ("removexattr", libc::SYS_removexattr, [root, 0, 0, 0]),
        ("chdir", libc::SYS_chdir, [root, 0, 0, 0]),
        ("exec", libc::SYS_execve, [root, 0, 0, 0]),
        (
            "process",
            libc::SYS_clone,
            [flag(libc::CLONE_FS | libc::CLONE_NEWUSER), 0, 0, 0],
        ),
        (
            "namespace",
            libc::SYS_clone,
            [flag(libc::CLONE_THREAD | libc::CLONE_NEWNET), 0, 0, 0],
        ),
        ("clone3", libc::SYS_clone3, [0; 4]),
        ("kill", libc::SYS_kill, [parent, 0, 0, 0]),
        ("kill itself", libc::SYS_kill, [own, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [parent, parent, 0, 0]),
        ("tkill", libc::SYS_tkill, [parent, 0, 0, 0]),
        (
            "ptrace",
            libc::SYS_ptrace,
            [libc::PTRACE_ATTACH as usize, 0, 0, 0],
        ),
        (
            "F_SETOWN",
            libc::SYS_fcntl,
            [stdout, flag(libc::F_SETOWN), own, 0],
        ),
        ("F_SETSIG", libc::SYS_fcntl, [stdout, F_SETSIG, 0, 0]),
        (
            "O_ASYNC",
            libc::SYS_fcntl,
            [stdout, flag(libc::F_SETFL), 0, 0],
        ),
        (
            "FIOASYNC",
            libc::SYS_ioctl,
            [stdout, libc::FIOASYNC as usize, 0, 0],
        ),
        ("setpriority", libc::SYS_setpriority, [0; 4]),
        ("prlimit", libc::SYS_prlimit64, [parent, 0, 0, 0]),
        (
            "sched_setaffinity",
            libc::SYS_sched_setaffinity,
            [parent, 0, 0, 0],
        ),
        (
            "sched_getaffinity",
            libc::SYS_sched_getaffinity,
            [parent, 0, 0, 0],
        ),
        (
            "sched_setscheduler",
            libc::SYS_sched_setscheduler,
            [parent, 0, 0, 0],
        ),
        ("sched_setattr", libc::SYS_sched_setattr, [parent, 0, 0, 0]),
        ("ioprio_set", libc::SYS_ioprio_set, [1, 0, 0, 0]),
        (
            "PR_SET_PDEATHSIG",
            libc::SYS_prctl,
            [flag(libc::PR_SET_PDEATHSIG), 9, 0, 0],
        ),
        (
            "MADV_HWPOISON",
            libc::SYS_madvise,
            [0, 0, flag(libc::MADV_HWPOISON), 0],
        ),
        (
            "FUTEX_LOCK_PI",
            libc::SYS_futex,
            [0, flag(libc::FUTEX_LOCK_PI), 0, 0],
        ),
    ]
}

/// The number of every call that is not in the list and that the kernel has.
fn beside() -> String {
    let Ok(rules) = confine::rules() else {
        return "the rules cannot be made\n".to_owned();
    };
    // Without a filter this would end or change the process.
    if !is_refused(libc::SYS_getppid) {
        return String::new();
    }
    (0..NUMBERS)
        .filter(|number| !PROBES.contains(number) && !rules.contains_key(number))
        .filter(|number| !is_refused(*number))
        .map(|number| format!("call {number}: there\n"))
        .collect()
}

fn is_refused(number: c_long) -> bool {
    // No descriptor, no address.
    let error = call(number, [usize::MAX; 4]).err();
    error.and_then(|error| error.raw_os_error()) == Some(libc::ENOSYS)
}

fn flag(value: c_int) -> usize {
    value.cast_unsigned() as usize
}

#[expect(
    unsafe_code,
    reason = "only the kernel can say what it refuses, and libraries do not have all calls"
)]
fn call(number: c_long, [a, b, c, d]: Arguments) -> io::Result<()> {
    // SAFETY: the arguments are numbers, texts that live as long as the program, and addresses at which
    // there is nothing: the kernel checks them, and writes nowhere.
    match unsafe { libc::syscall(number, a, b, c, d, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
