//! Compilation: in a child process, within limits, and once per component.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::delivery::outcome::Outcome;
use hostler::sandbox::{Allocation, Cache, Compiler, Limits, LoadError, Sandbox, Settings};
use hostler_components::Refusal;
use hostler_tests::command::{end, fed, hostler};
use hostler_tests::guests::{component, guest, handler};
use hostler_tests::host::binary;
use hostler_tests::redis::PATIENCE;
use hostler_tests::rig::Rig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use tempfile::{NamedTempFile, TempDir};
use wasm_encoder::{
    CodeSection, Component, Function, FunctionSection, Module, ModuleSection, TypeSection, ValType,
};

const MIB: u64 = 1 << 20;

/// The built binary compiles, as a child.
pub(crate) fn by_child(limits: Limits) -> Settings {
    Settings {
        limits,
        compiler: Compiler::Child { program: binary() },
        ..Settings::default()
    }
}

/// Limits of a machine that has much else to do: no instance is refused because it was made slowly.
pub(crate) fn patient() -> Limits {
    Limits {
        wall: PATIENCE,
        cpu: PATIENCE,
        compile_time: PATIENCE,
        ..Limits::default()
    }
}

/// Code comes only from the cache: the compiler does not exist.
fn only_from(cache: &Path) -> Settings {
    Settings {
        compiler: Compiler::Child {
            program: "/nowhere/hostler".into(),
        },
        ..kept_in(cache)
    }
}

/// This process compiles, and keeps the code.
fn kept_in(cache: &Path) -> Settings {
    Settings {
        cache: Some(Cache {
            dir: cache.to_owned(),
            max_bytes: 64 * MIB,
        }),
        ..Settings::default()
    }
}

/// A cache with one entry: its place, the component, and the settings.
fn with_entry() -> (Place, Vec<u8>, Settings) {
    let place = Place::new();
    let bytes = handler("", "i32.const 0");
    let settings = kept_in(&place.dir());
    assert!(!cached(&bytes, &settings));
    (place, bytes, settings)
}

/// Whether the code of this component came from the cache.
fn cached(bytes: &[u8], settings: &Settings) -> bool {
    let sandbox = Sandbox::load_bytes(bytes, settings).expect("it loads");
    sandbox.describe().cached
}

pub(crate) fn refusal(bytes: &[u8], settings: &Settings) -> LoadError {
    Sandbox::load_bytes(bytes, settings).expect_err("it is refused")
}

/// A directory for a cache.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("below/hostler")
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir()).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    fn only_file(&self) -> PathBuf {
        let mut files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }

    fn size(&self) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).unwrap().len();
        self.files().into_iter().map(size).sum()
    }
}

/// A component of one core module.
pub(crate) fn wrapping(module: &Module) -> Vec<u8> {
    let mut component = Component::new();
    component.section(&ModuleSection(module));
    component.finish()
}

pub(crate) fn module(functions: Vec<Function>) -> Module {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut indices = FunctionSection::new();
    let mut code = CodeSection::new();
    for function in functions {
        indices.function(0);
        code.function(&function);
    }
    let mut module = Module::new();
    module.section(&types).section(&indices).section(&code);
    module
}

/// A component whose compilation takes long: it has many large functions.
pub(crate) fn slow_to_compile(functions: usize) -> Vec<u8> {
    wrapping(&slow_module(functions))
}

/// The module of this component.
pub(crate) fn slow_module(functions: usize) -> Module {
    let function = |seed: usize| {
        let mut function = Function::new([(64, ValType::I32)]);
        let mut code = function.instructions();
        for i in 0..3_000_u32 {
            let local = |step: u32| 1 + (i * step + seed as u32) % 64;
            code.local_get(local(7)).local_get(local(13)).i32_mul();
            code.local_get(local(29)).i32_add().local_set(local(31));
        }
        code.local_get(5).end();
        function
    };
    module((0..functions).map(function).collect())
}

/// A component whose compilation takes much memory: jumps with tens of thousands of targets. A
/// target is one byte in the component, and far more in the compiler.
pub(crate) fn large_to_compile(jumps: usize) -> Vec<u8> {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for _ in 0..jumps {
        code.block(wasm_encoder::BlockType::Empty)
            .local_get(0)
            .br_table(vec![0; 65_000], 0)
            .end();
    }
    code.local_get(0).end();
    wrapping(&module(vec![function]))
}

#[tokio::test]
async fn code_that_a_child_compiled_runs_in_this_process() {
    let bytes = fs::read(guest("scripted")).unwrap();
    for allocation in [Allocation::Auto, Allocation::OnDemand] {
        let settings = Settings {
            allocation,
            ..by_child(Limits::default())
        };
        let mut rig = Rig::bytes(&bytes, &settings);
        assert!(!rig.sandbox.describe().cached);
        assert_eq!(rig.run("grow:8").await.outcome, Outcome::Ack);
        let pooling = allocation == Allocation::Auto;
        assert_eq!(rig.sandbox.describe().pooling, pooling);
    }
}

#[test]
fn a_child_reports_the_same_error_as_this_process() {
    let mut bytes = component("(component)");
    bytes.extend([0x0b, 1, 0xff]);
    let here = refusal(&bytes, &Settings::default()).to_string();
    let there = refusal(&bytes, &by_child(Limits::default())).to_string();
    assert!(here.starts_with("is not a valid component: "), "{here}");
    assert_eq!(here, there);
}

#[test]
fn a_compilation_that_takes_too_long_is_refused() {
    let bomb = slow_to_compile(400);
    let limited = |compile_time| {
        by_child(Limits {
            compile_time,
            ..Limits::default()
        })
    };
    // It was compiled: the refusal says that it exports no handler.
    let obeyed = refusal(&bomb, &limited(Duration::from_secs(600)));
    assert!(matches!(obeyed, LoadError::NoHandler { .. }), "{obeyed}");
    let violated = refusal(&bomb, &limited(Duration::from_millis(150)));
    assert_eq!(
        violated.to_string(),
        "did not compile within 150ms (limit `compile_time`); raise the limit, or make the component smaller"
    );
}

#[test]
fn a_compilation_that_takes_too_much_memory_is_refused() {
    let bomb = large_to_compile(14);
    let limited = |compile_memory| {
        by_child(Limits {
            compile_memory,
            ..Limits::default()
        })
    };
    let obeyed = refusal(&bomb, &limited(8 << 30));
    assert!(matches!(obeyed, LoadError::NoHandler { .. }), "{obeyed}");
    let violated = refusal(&bomb, &limited(320 * MIB));
    assert_eq!(
        violated.to_string(),
        "takes more than 335544320 bytes of memory to compile (limit `compile_memory`); raise the \
         limit, or make the component smaller"
    );
}

/// A compiler that is a shell script.
fn script(place: &Place, text: &str) -> Settings {
    let program = place.0.path().join("compiler");
    fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    Settings {
        compiler: Compiler::Child { program },
        ..by_child(Limits {
            compile_time: Duration::from_secs(5),
            ..Limits::default()
        })
    }
}

#[test]
fn a_broken_compiler_is_reported() {
    let place = Place::new();
    let bytes = handler("", "i32.const 0");
    let said = |text: &str| {
        let settings = script(&place, text);
        refusal(&bytes, &settings).to_string()
    };
    let crashed = "can't be compiled: the compiler ended with ";
    assert_eq!(
        said("cat >/dev/null; echo first >&2; printf 'last\\033[31m\\n' >&2; exit 3"),
        format!("{crashed}exit status: 3: last\\u{{1b}}[31m")
    );
    let text = said("kill -SEGV $$");
    assert!(text.starts_with(&format!("{crashed}signal: 11")), "{text}");
    // An answer that is cut off or unknown counts as no answer.
    let code = |bytes: u64| {
        let head = format!(r#"{{"answer":"code","bytes":{bytes},"unconfined":null}}"#);
        format!("echo '{head}'")
    };
    let short = format!("{}; printf shorter", code(9));
    for text in ["printf {", &*short, "echo hello world"] {
        let text = said(&format!("cat >/dev/null; {text}"));
        assert_eq!(text, format!("{crashed}exit status: 0: no message"));
    }
    // An answer that is too long, and an answer that never comes.
    let text = said(&format!("cat >/dev/null; {}; exec sleep 60", code(1 << 60)));
    assert!(text.starts_with("compiles to more than "), "{text}");
    let text = said("exec >&-; exec sleep 60");
    assert!(text.starts_with("did not compile within 5s "), "{text}");
    // The compiler gets no environment variables: some hold passwords.
    assert!(std::env::vars_os().count() > 1);
    let own = "grep -v -x -e PWD -e OLDPWD -e SHLVL -e _";
    let text = said(&format!(
        "cat >/dev/null; env | cut -d= -f1 | {own} | sort | tr '\\n' ' ' >&2; exit 3"
    ));
    assert_eq!(
        text.trim_end(),
        format!("{crashed}exit status: 3: MALLOC_ARENA_MAX RAYON_NUM_THREADS")
    );

    let nowhere = only_from(&place.dir());
    assert_eq!(
        refusal(&bytes, &nowhere).to_string(),
        "can't be run here: the compiler did not start: /nowhere/hostler: No such file or \
         directory (os error 2)"
    );
}

#[test]
fn the_compiler_command_refuses_other_callers() {
    let ended = fed(["compile-component"], b"hello\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (74, ""), "{ended:?}");
    let refusal = "this command is for hosts only";
    assert!(ended.stderr.contains(refusal), "{ended:?}");
    // A right job is refused too, when the parent in the job does not exist.
    let job = "{\"task\":\"compile\",\"parent\":1,\"cpu_seconds\":10}\n";
    let ended = fed(["compile-component"], job.as_bytes());
    assert_eq!(ended.code, 74, "{ended:?}");
    assert!(ended.stderr.contains("the parent has ended"), "{ended:?}");
}

/// What the kernel lets a compiler do, as it reports itself; and why it keeps its rights. A descriptor was left
/// open for it.
fn probed() -> (Option<String>, Vec<String>) {
    let job = format!(
        r#"{{"task":"probe","parent":{},"cpu_seconds":10}}"#,
        std::process::id()
    );
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(format!("{job}\n").as_bytes()).unwrap();
    input.rewind().unwrap();
    let started = "exec 9</proc/self/status; exec \"$0\" compile-component";
    let ended = end(Command::new("sh")
        .args(["-c", started])
        .arg(binary())
        .stdin(input));
    let answer: serde_json::Value = serde_json::from_str(&ended.ok().stdout).unwrap();
    let note = answer["unconfined"].as_str().map(str::to_owned);
    let report = answer["answer"]["report"].as_str().expect("a report");
    (note, report.lines().map(str::to_owned).collect())
}

#[test]
fn a_compiler_makes_only_the_calls_that_it_needs() {
    let (note, report) = probed();
    assert_eq!(note, None);
    let refused = format!(": {}", nix::libc::ENOSYS);
    // Network, files, programs, other processes, signals on input, priorities.
    let (attempts, rest): (Vec<_>, Vec<_>) =
        report.iter().partition(|line| line.ends_with(&refused));
    assert_eq!(attempts.len(), 33, "{report:#?}");
    let left_open = format!("left open: {}", nix::libc::EBADF);
    // A call that is not in the list, and is there, would follow.
    assert_eq!(rest, [&*left_open, "thread: done"]);
}

#[test]
fn a_compiler_that_cannot_be_confined_says_so() {
    const CHILD: &str = "HOSTLER_TEST_NO_SECCOMP";
    if std::env::var_os(CHILD).is_none() {
        // A process can never undo its bans: the test runs itself as a child.
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "sandbox::sandbox_compile::a_compiler_that_cannot_be_confined_says_so",
            ])
            .env(CHILD, "")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
        return;
    }
    // A kernel that does not take filters any more.
    let rules = BTreeMap::from([(nix::libc::SYS_seccomp, Vec::new())]);
    let denied = SeccompAction::Errno(nix::libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter_all_threads(&filter).unwrap();

    let (note, report) = probed();
    let note = note.expect("a note");
    assert!(note.contains("Function not implemented"), "{note}");
    // It could not be confined: this shows that the probe finds what is allowed.
    for attempt in [
        "socket",
        "open to write",
        "kill",
        "F_SETOWN",
        "O_ASYNC",
        "setpriority",
    ] {
        let line = format!("{attempt}: done");
        assert!(report.contains(&line), "{report:#?}");
    }
    // The host compiles all the same, and says it.
    let log = NamedTempFile::new().unwrap();
    let writer = Arc::new(log.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, || {
        Sandbox::load_bytes(&handler("", "i32.const 0"), &by_child(Limits::default())).unwrap();
    });
    let said = "the process that compiles keeps the rights of this user";
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains(said), "{log}");
}

/// The child processes of this process.
pub(crate) fn children(parent: u32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name in parentheses: the state, then the parent.
        let parent_of = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok();
        parent_of(&stat) == Some(parent)
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_compiler_dies_with_its_host() {
    let place = Place::new();
    let file = place.0.path().join("bomb.wasm");
    fs::write(&file, slow_to_compile(600)).unwrap();
    let mut host: Child = hostler(["check", file.to_str().unwrap(), "--compile-cache", "off"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let compiler = until("a compiler", || children(host.id()).pop());
    let lives = || fs::exists(format!("/proc/{compiler}/exe")).unwrap();
    // The compiler sets its limits before it starts threads.
    until("compiling", || {
        fs::read_dir(format!("/proc/{compiler}/task"))
            .is_ok_and(|tasks| tasks.count() > 1)
            .then_some(())
    });
    let status = fs::read_to_string(format!("/proc/{compiler}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let limits = fs::read_to_string(format!("/proc/{compiler}/limits")).unwrap();
    for (limit, value) in [
        ("Max core file size", "0"),
        ("Max file size", "0"),
        ("Max address space", "2147483648"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        let soft = line[limit.len()..].split_whitespace().next();
        assert_eq!(soft, Some(value), "{line}");
    }
    kill(Pid::from_raw(host.id() as i32), Signal::SIGKILL).unwrap();
    host.wait().unwrap();
    until("the end of the compiler", || (!lives()).then_some(()));
}

#[tokio::test]
async fn compiled_code_is_cached_for_this_user_only() {
    let place = Place::new();
    let bytes = fs::read(guest("scripted")).unwrap();
    assert!(!cached(&bytes, &kept_in(&place.dir())));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.dir()), 0o700);
    assert_eq!(mode(&place.only_file()), 0o600);
    let mut rig = Rig::bytes(&bytes, &only_from(&place.dir()));
    assert!(rig.sandbox.describe().cached);
    assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
}

#[test]
fn the_binary_caches_compiled_code() {
    let place = Place::new();
    let scripted = guest("scripted");
    let check = |arguments: &[&str]| {
        let mut command = hostler(["check", scripted.to_str().unwrap(), "--json"]);
        command.args(arguments);
        command.env("XDG_CACHE_HOME", place.0.path().join("below"));
        end(&mut command).ok().json()["cached"].as_bool().unwrap()
    };
    assert!(!check(&["--compile-cache", "off"]));
    assert!(!place.dir().exists());
    assert!(!check(&[]));
    assert!(check(&[]));
    assert!(check(&["--compile-cache", place.dir().to_str().unwrap()]));
    let other = place.0.path().join("other");
    assert!(!check(&["--compile-cache", other.to_str().unwrap()]));
    // Code for a pool serves each memory limit: the guards of the pool check the bounds.
    assert!(check(&["--memory", "32MiB"]));
}

#[test]
fn code_for_other_settings_is_cached_separately() {
    let (place, bytes, settings) = with_entry();
    assert!(!cached(&handler("", "i32.const  0 nop"), &settings));
    let on_demand = Settings {
        allocation: Allocation::OnDemand,
        ..settings.clone()
    };
    assert!(!cached(&bytes, &on_demand));
    assert!(cached(&bytes, &settings));
    assert!(cached(&bytes, &on_demand));
    assert_eq!(place.files().len(), 3);
}

#[tokio::test]
async fn damaged_cache_entries_are_compiled_again() {
    let (place, bytes, settings) = with_entry();
    let file = place.only_file();
    let whole = fs::read(&file).unwrap();
    let mut damages: Vec<Vec<u8>> = vec![
        Vec::new(),
        whole[..10].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..], b"x"].concat(),
    ];
    // Anywhere: the magic bytes, the digest, the first, middle and last byte of the code.
    let (middle, last) = (whole.len() / 2, whole.len() - 1);
    for at in [0, 15, 16, 47, 48, 49, 1000, middle, last] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        damages.push(damaged);
    }
    for damaged in damages {
        fs::write(&file, &damaged).unwrap();
        let mut rig = Rig::bytes(&bytes, &settings);
        assert!(!rig.sandbox.describe().cached);
        assert_eq!(rig.run("").await.outcome, Outcome::Ack);
        // The entry is written again.
        assert_eq!(fs::read(place.only_file()).unwrap(), whole);
        assert!(cached(&bytes, &settings));
    }
}

#[test]
fn the_cache_entry_of_another_component_is_not_used() {
    let place = Place::new();
    let settings = kept_in(&place.dir());
    let (one, two) = (handler("", "i32.const 0"), handler("", "i32.const 8"));
    assert!(!cached(&one, &settings));
    let first = place.only_file();
    assert!(!cached(&two, &settings));
    let second = place.files().into_iter().find(|f| *f != first).unwrap();
    fs::copy(&first, &second).unwrap();
    assert!(!cached(&two, &settings));
    assert_ne!(fs::read(first).unwrap(), fs::read(second).unwrap());
}

#[test]
fn a_cache_entry_that_is_not_a_private_file_is_not_read() {
    let (place, bytes, settings) = with_entry();
    let file = place.only_file();
    let elsewhere = place.0.path().join("elsewhere");

    // A link, although it leads to the right bytes.
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(!cached(&bytes, &settings));
    assert!(cached(&bytes, &settings));
    // A file that other users may write, although its content is right.
    fs::set_permissions(&file, Permissions::from_mode(0o622)).unwrap();
    assert!(!cached(&bytes, &settings));
    assert!(cached(&bytes, &settings));
    // A pipe without a writer.
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").arg("-m600").arg(&file).status();
    assert!(made.unwrap().success());
    assert!(!cached(&bytes, &settings));
    assert!(cached(&bytes, &settings));
    // A directory with the name of the entry: it stays, and the code is not cached.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(!cached(&bytes, &settings));
    assert!(!cached(&bytes, &settings));
    assert_eq!(place.only_file(), file);
}

#[test]
fn a_cache_directory_that_others_can_access_is_not_used() {
    let (place, bytes, settings) = with_entry();
    for mode in [0o755, 0o770, 0o701] {
        fs::set_permissions(place.dir(), Permissions::from_mode(mode)).unwrap();
        assert!(!cached(&bytes, &settings), "{mode:o}");
    }
    fs::set_permissions(place.dir(), Permissions::from_mode(0o700)).unwrap();
    assert!(cached(&bytes, &settings));
    // The path is a file, and no directory can be created.
    let file = place.0.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(!cached(&bytes, &kept_in(&file)));
    assert!(!cached(&bytes, &kept_in(&file.join("below"))));
}

#[test]
fn the_cache_is_bounded_and_drops_the_least_recently_used_code() {
    let place = Place::new();
    // A different component for each number.
    let numbered = |number: u32| handler("", &format!("i32.const {}", number * 8));
    let roomy = kept_in(&place.dir());
    assert!(!cached(&numbered(0), &roomy));
    let each = place.size();
    let settings = Settings {
        cache: Some(Cache {
            dir: place.dir(),
            // Three entries fit, four do not.
            max_bytes: each * 7 / 2,
        }),
        ..roomy
    };
    // A foreign file is neither counted nor removed.
    let foreign = place.dir().join("notes.txt");
    fs::write(&foreign, "x".repeat(each as usize * 4)).unwrap();
    // Make the entries older: file systems have coarse times.
    let aged = |seconds: u64| {
        for file in place.files() {
            let file = fs::File::options().write(true).open(file).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.set_modified(modified - Duration::from_secs(seconds))
                .unwrap();
        }
    };
    for number in 1..=2 {
        aged(10);
        assert!(!cached(&numbered(number), &settings));
    }
    // The first entry is the oldest, but it was used after the second.
    aged(10);
    assert!(cached(&numbered(0), &settings));
    aged(10);
    assert!(!cached(&numbered(3), &settings));
    let kept: Vec<bool> = (0..4)
        .map(|number| Sandbox::load_bytes(&numbered(number), &only_from(&place.dir())).is_ok())
        .collect();
    assert_eq!(kept, [true, false, true, true]);
    assert!(foreign.exists());
    fs::remove_file(foreign).unwrap();
    for number in 4..20 {
        assert!(!cached(&numbered(number), &settings));
        assert!(place.size() <= each * 7 / 2, "{}", place.size());
    }
    // The partial file of a dead writer is removed after an hour.
    let partial = place.dir().join("0123.code.00.partial");
    fs::write(&partial, "x").unwrap();
    aged(10);
    assert!(!cached(&numbered(20), &settings));
    assert!(partial.exists());
    aged(3600);
    assert!(!cached(&numbered(21), &settings));
    assert!(!partial.exists());
    // Code that is larger than the whole cache is compiled, but not cached.
    let tiny = Settings {
        cache: Some(Cache {
            dir: place.dir(),
            max_bytes: each / 2,
        }),
        ..settings
    };
    assert!(!cached(&numbered(22), &tiny));
    assert!(!cached(&numbered(22), &tiny));
}

#[test]
fn hosts_that_fill_the_cache_at_the_same_time_do_not_disturb_each_other() {
    let place = Place::new();
    let file = place.0.path().join("handler.wasm");
    let dir = place.dir();
    let check = || {
        let mut command = hostler(["check", file.to_str().unwrap(), "--json"]);
        command.args(["--compile-cache", dir.to_str().unwrap()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for round in 0..4 {
        fs::write(&file, handler("", &format!("i32.const {}", round * 8))).unwrap();
        let hosts: Vec<Child> = (0..4).map(|_| check().spawn().unwrap()).collect();
        for host in hosts {
            let output = host.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
        assert_eq!(place.files().len(), round + 1, "one entry each");
        assert_eq!(end(&mut check()).ok().json()["cached"], true);
    }
}

#[test]
fn a_cache_entry_given_as_a_handler_is_refused() {
    let (place, _, settings) = with_entry();
    let entry = fs::read(place.only_file()).unwrap();
    // A cache entry, given as a handler, with and without its header.
    let header = 52 + br#""short""#.len();
    let error = refusal(&entry[header..], &settings);
    assert!(
        matches!(error, LoadError::Refused(Refusal::Precompiled)),
        "{error}"
    );
    let error = refusal(&entry, &settings);
    assert!(
        matches!(error, LoadError::Refused(Refusal::NotWasm { .. })),
        "{error}"
    );
}
