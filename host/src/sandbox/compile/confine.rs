//! Takes away what a process that compiles does not need, by a filter of system calls: network, files, other
//! programs and processes.
//!
//! The child keeps the user of its parent, and a bug of the compiler may let a component run code there. With
//! the filter this code has the open pipes, memory and time, and no more. What is denied fails with `EPERM`.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Calls that are always denied.
const DENIED: &[libc::c_long] = &[
    // Network.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Does any of these without a call of its own.
    libc::SYS_io_uring_setup,
    // Files.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_truncate,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_fsopen,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_tkill,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
];

/// The older names of some of them.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_fork,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[libc::c_long] = &[];

/// Confine all threads of this process for the rest of its life.
///
/// # Errors
/// The kernel has no such filter, or does not let this process set one; nothing is confined, or a part.
pub(super) fn confine() -> Result<(), String> {
    let set = || -> Result<(), seccompiler::Error> {
        for filter in [threads_only()?, denials()?] {
            apply_filter_all_threads(&filter)?;
        }
        Ok(())
    };
    set().map_err(|error| error.to_string())
}

/// A kernel "without" `clone3`: its flags are in memory, where no filter sees them. Libraries then use `clone`.
fn threads_only() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    program(rules, libc::ENOSYS)
}

fn denials() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<_, _> = DENIED
        .iter()
        .chain(DENIED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    let when = |argument, op, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?;
        Ok::<_, seccompiler::BackendError>(vec![SeccompRule::new(vec![condition])?])
    };
    // A process may end itself by a signal: `abort` does.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_kill, when(0, SeccompCmpOp::Ne, own)?);
    rules.insert(libc::SYS_tgkill, when(0, SeccompCmpOp::Ne, own)?);
    // Its own limits only.
    rules.insert(libc::SYS_prlimit64, when(0, SeccompCmpOp::Ne, 0)?);
    // Threads only.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let no_thread = when(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    rules.insert(libc::SYS_clone, no_thread);
    program(rules, libc::EPERM)
}

/// Allow everything but these calls, which fail with `error`.
fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: libc::c_int,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(error.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?.try_into()
}
