//! `--redis embedded`: a private server for each directory, which ends with its last user.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use hostler::embedded::{Embedded, Error};
use hostler_tests::redis::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Another process that uses the server of a directory.
struct Holder {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn spawn(dir: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_embedded-holder"))
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE * 3, self.lines.next_line());
        line.await.unwrap().unwrap().expect("the holder ended")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().unwrap().cast_signed())
    }

    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    async fn stop(mut self) {
        drop(self.process.stdin.take());
        assert_eq!(self.line().await, "stopped");
        assert!(self.process.wait().await.unwrap().success());
    }
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    // The default of half a second is short on a busy machine.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.unwrap()
}

async fn info(connection: &mut MultiplexedConnection, field: &str) -> String {
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(connection)
        .await
        .unwrap();
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap()
        .trim()
        .to_owned()
}

async fn server_pid(connection: &mut MultiplexedConnection) -> Pid {
    Pid::from_raw(info(connection, "process_id").await.parse().unwrap())
}

fn is_running(pid: Pid) -> bool {
    // A zombie has ended already.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(
            since.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The processes whose command line names this directory, with the lines.
fn processes_of(dir: &Path) -> Vec<(Pid, String)> {
    let dir = dir.canonicalize().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(dir.to_str()?)
                .then(|| (Pid::from_raw(pid), line))
        })
        .collect()
}

async fn wait_until_unused(dir: &Path) {
    until("no process is left", || processes_of(dir).is_empty()).await;
}

fn temp() -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join(".hostler");
    (temp, dir)
}

mod measured {
    use super::*;

    #[tokio::test]
    async fn data_outlives_the_server_and_its_directory_is_private() {
        let (_temp, dir) = temp();
        let embedded = Embedded::start(&dir).await.unwrap();
        let mut connection = connect(embedded.url()).await;
        let _: () = connection.set("k", "v").await.unwrap();
        let settings: Vec<String> = redis::cmd("CONFIG")
            .arg("GET")
            .arg(&["appendonly", "port", "maxmemory-policy"])
            .query_async(&mut connection)
            .await
            .unwrap();
        for setting in [
            ["appendonly", "yes"],
            ["port", "0"],
            ["maxmemory-policy", "noeviction"],
        ] {
            assert!(
                settings.chunks(2).any(|pair| pair == setting),
                "{settings:?}"
            );
        }
        for private in [dir.clone(), dir.join("redis")] {
            let mode = private.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", private.display());
        }
        let server = server_pid(&mut connection).await;
        embedded.stop().await.unwrap();
        assert!(!is_running(server), "stop waits for the end");
        assert_eq!(processes_of(&dir), []);

        let again = Embedded::start(&dir).await.unwrap();
        let value: String = connect(again.url()).await.get("k").await.unwrap();
        assert_eq!(value, "v");
        again.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_server_ends_when_its_user_is_killed() {
    let (_temp, dir) = temp();
    let mut holder = Holder::spawn(&dir);
    let url = holder.line().await;
    let mut connection = connect(&url).await;
    let _: () = connection.set("k", "v").await.unwrap();
    let server = server_pid(&mut connection).await;
    holder.kill().await;
    until("the server ends", || !is_running(server)).await;
    wait_until_unused(&dir).await;

    // Its data is still there.
    let embedded = Embedded::start(&dir).await.unwrap();
    let value: String = connect(embedded.url()).await.get("k").await.unwrap();
    assert_eq!(value, "v");
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_handle_ends_the_server() {
    let (_temp, dir) = temp();
    let embedded = Embedded::start(&dir).await.unwrap();
    let server = server_pid(&mut connect(embedded.url()).await).await;
    drop(embedded);
    until("the server ends", || !is_running(server)).await;
    wait_until_unused(&dir).await;
}

#[tokio::test]
async fn processes_share_a_server_and_the_last_one_ends_it() {
    let (_temp, dir) = temp();
    let mut holders: Vec<Holder> = (0..6).map(|_| Holder::spawn(&dir)).collect();
    let mut servers = Vec::new();
    for holder in &mut holders {
        let url = holder.line().await;
        servers.push(info(&mut connect(&url).await, "run_id").await);
    }
    servers.dedup();
    assert_eq!(servers.len(), 1, "they have started at once");

    // Each of them ends, killed or not: the others keep the server.
    let embedded = Embedded::start(&dir).await.unwrap();
    let mut connection = connect(embedded.url()).await;
    let server = server_pid(&mut connection).await;
    for (i, holder) in holders.into_iter().enumerate() {
        if i % 2 == 0 {
            holder.kill().await;
        } else {
            holder.stop().await;
        }
        assert_eq!(info(&mut connection, "run_id").await, servers[0]);
    }
    embedded.stop().await.unwrap();
    assert!(!is_running(server));
    wait_until_unused(&dir).await;
}

#[tokio::test]
async fn the_server_is_in_a_process_group_of_its_own() {
    let (_temp, dir) = temp();
    let embedded = Embedded::start(&dir).await.unwrap();
    let server = server_pid(&mut connect(embedded.url()).await).await;
    let ours = getpgid(None).unwrap();
    // Ctrl-C signals the whole group.
    assert_ne!(getpgid(Some(server)).unwrap(), ours);
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_killed_is_started_again() {
    let (_temp, dir) = temp();
    let first = Embedded::start(&dir).await.unwrap();
    let mut connection = connect(first.url()).await;
    let _: () = connection.set("k", "v").await.unwrap();
    let server = server_pid(&mut connection).await;
    kill(server, Signal::SIGKILL).unwrap();
    until("the server is gone", || !is_running(server)).await;
    assert!(dir.join("redis.sock").exists(), "it left its socket behind");

    // Its first user is still there.
    let second = Embedded::start(&dir).await.unwrap();
    let mut connection = connect(second.url()).await;
    let value: String = connection.get("k").await.unwrap();
    assert_eq!(value, "v");
    drop(first);
    assert_eq!(connection.get::<_, String>("k").await.unwrap(), "v");
    second.stop().await.unwrap();
    wait_until_unused(&dir).await;
}

#[tokio::test]
async fn an_abandoned_server_is_replaced() {
    let (_temp, dir) = temp();
    let mut holder = Holder::spawn(&dir);
    let url = holder.line().await;
    let mut connection = connect(&url).await;
    let _: () = connection.set("k", "v").await.unwrap();
    let server = server_pid(&mut connection).await;
    // All processes that could end it are killed.
    let mut killed = Vec::new();
    for (pid, line) in processes_of(&dir) {
        if pid != server && pid != holder.pid() {
            assert!(line.contains("flock"), "an unknown process: {line}");
            kill(pid, Signal::SIGKILL).unwrap();
            killed.push(pid);
        }
    }
    holder.kill().await;
    // A process that is killed holds its locks until it has ended.
    let have_ended = || !killed.iter().any(|pid| is_running(*pid));
    until("the others have ended", have_ended).await;
    assert!(is_running(server));

    let embedded = Embedded::start(&dir).await.unwrap();
    let mut connection = connect(embedded.url()).await;
    assert_ne!(server_pid(&mut connection).await, server);
    // It has closed all its files. The process may take a moment to end.
    until("the old one is gone", || !is_running(server)).await;
    assert_eq!(connection.get::<_, String>("k").await.unwrap(), "v");
    embedded.stop().await.unwrap();
    wait_until_unused(&dir).await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let (_temp, dir) = temp();
    let embedded = Embedded::start(&dir).await.unwrap();
    let _: () = connect(embedded.url()).await.set("k", "v").await.unwrap();
    embedded.stop().await.unwrap();
    let manifest = dir.join("redis/appendonlydir/appendonly.aof.manifest");
    std::fs::write(&manifest, "this is no manifest\n").unwrap();

    let error = Embedded::start(&dir).await.unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("redis.log") && text.contains("manifest"),
        "{text}"
    );
    assert!(text.len() < 2048 && !text.contains('\n'), "{text}");
    wait_until_unused(&dir).await;
}

#[tokio::test]
async fn the_log_is_bounded() {
    let (_temp, dir) = temp();
    std::fs::create_dir(&dir).unwrap();
    let log = dir.join("redis.log");
    std::fs::write(&log, vec![b'x'; 2 << 20]).unwrap();
    let embedded = Embedded::start(&dir).await.unwrap();
    assert!(log.metadata().unwrap().len() < 1 << 20);
    embedded.stop().await.unwrap();
}
