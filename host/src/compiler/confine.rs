//! Takes away what a process that compiles does not need, by a filter of system calls. The filter lists what is
//! allowed: memory, threads, time, random numbers, signals of its own, and what is open.
//!
//! The child keeps the user of its parent, and a bug of the compiler may let a component run code there. With
//! the filter this code has the open pipes, memory and time, and no more. Any other call fails with `ENOSYS`, as
//! in a kernel that does not have it: a library that tries a newer call then uses an older one, or does without.

use std::collections::BTreeMap;

use nix::libc::{self, c_int, c_long};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Calls that are allowed with any arguments. None takes a path, or the id of another process.
const ALLOWED: &[c_long] = &[
    // What is open: the pipes, the meters, and files in memory.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_close,
    libc::SYS_memfd_create,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // New code is visible to all threads (aarch64).
    libc::SYS_membarrier,
    // Threads.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals that it gets: a trap of a guest is one.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
];

/// What threads may share. With these flags alone, nothing but a thread of this process begins.
const THREAD: c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_CHILD_CLEARTID
    // musl sets it. It means nothing.
    | libc::CLONE_DETACHED;

/// How threads wait for each other. The operations that lend priorities are missing: they had bugs.
const WAITS: [c_int; 5] = [
    libc::FUTEX_WAIT,
    libc::FUTEX_WAKE,
    libc::FUTEX_REQUEUE,
    libc::FUTEX_WAIT_BITSET,
    libc::FUTEX_WAKE_BITSET,
];

/// Confine all threads of this process for the rest of its life.
///
/// # Errors
/// The kernel has no such filter, or does not let this process set one; nothing is confined.
pub(super) fn confine() -> Result<(), String> {
    let set = || -> Result<(), seccompiler::Error> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let other = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        let filter = SeccompFilter::new(rules()?, other, SeccompAction::Allow, arch)?;
        apply_filter_all_threads(&BpfProgram::try_from(filter)?)
    };
    set().map_err(|error| error.to_string())
}

/// The allowed calls. Those that have rules are allowed with these arguments only.
pub(super) fn rules() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    // All arguments that are compared have 32 bits.
    let when = |argument, op, value: u32| {
        let value = u64::from(value);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?;
        SeccompRule::new(vec![condition])
    };
    let equal = |argument, value: c_int| when(argument, SeccompCmpOp::Eq, value.cast_unsigned());
    let masked = |argument, mask: c_int, value: c_int| {
        let op = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
        when(argument, op, value.cast_unsigned())
    };
    let mut rules: BTreeMap<_, _> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let thread_only = masked(0, !THREAD | libc::CLONE_THREAD, libc::CLONE_THREAD)?;
    let modes = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    let waits = WAITS.iter().map(|wait| masked(1, !modes, *wait));
    // `abort` sends a signal to its own process.
    let own = std::process::id().cast_signed();
    rules.extend([
        (libc::SYS_clone, vec![thread_only]),
        (libc::SYS_futex, waits.collect::<Result<_, _>>()?),
        (libc::SYS_tgkill, vec![equal(0, own)?]),
        (libc::SYS_sched_getaffinity, vec![equal(0, 0)?]),
        (libc::SYS_prctl, vec![equal(0, libc::PR_SET_NAME)?]),
        (libc::SYS_fcntl, vec![equal(1, libc::F_ADD_SEALS)?]),
        (libc::SYS_madvise, vec![equal(2, libc::MADV_DONTNEED)?]),
    ]);
    Ok(rules)
}
