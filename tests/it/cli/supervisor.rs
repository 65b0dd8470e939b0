//! A host under a supervisor such as systemd: what it reports, and SIGHUP.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{PATIENCE, RedisServer};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// The socket on which a supervisor listens.
struct Supervisor {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Supervisor {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        Self {
            socket,
            heard: Vec::new(),
        }
    }

    /// Listen until this has been heard `times` times.
    fn hears(&mut self, wanted: &str, times: usize) {
        let begun = Instant::now();
        let mut buffer = [0; 4096];
        while self
            .heard
            .iter()
            .filter(|line| line.starts_with(wanted))
            .count()
            < times
        {
            assert!(
                begun.elapsed() < PATIENCE,
                "no `{wanted}` in {:#?}",
                self.heard
            );
            if let Ok(length) = self.socket.recv(&mut buffer) {
                let text = str::from_utf8(&buffer[..length]).unwrap();
                self.heard.extend(text.lines().map(str::to_owned));
            }
        }
    }

    fn has_heard(&self, wanted: &str) -> bool {
        self.heard.iter().any(|line| line.starts_with(wanted))
    }
}

/// A host that is ready, and its supervisor, which hears from it in this directory at least each 900 ms.
async fn supervised(redis: &RedisServer) -> (Supervisor, Host, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let supervisor = Supervisor::listen(&path);
    let options = HostOptions::new(redis)
        .variable("NOTIFY_SOCKET", path.to_str().unwrap())
        .variable("WATCHDOG_USEC", "900000");
    (supervisor, options.ready().await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_hears_when_a_host_is_ready_alive_and_stopping() {
    let mut redis = RedisServer::start();
    let (mut supervisor, host, _dir) = supervised(&redis).await;
    supervisor.hears("READY=1", 1);
    supervisor.hears("STATUS=ready", 1);
    supervisor.hears("WATCHDOG=1", 2);
    assert!(!supervisor.has_heard("STOPPING=1"));
    redis.kill();
    supervisor.hears("STATUS=not ready: redis-away: ", 1);
    redis.restart();
    supervisor.hears("STATUS=ready", 2);
    // A host that hangs is silent: the supervisor ends it then.
    host.pause().await;
    while supervisor.socket.recv(&mut [0; 4096]).is_ok() {}
    let patience = Some(Duration::from_millis(900));
    supervisor.socket.set_read_timeout(patience).unwrap();
    assert!(supervisor.socket.recv(&mut [0; 4096]).is_err());
    host.resume();
    let beats = supervisor
        .heard
        .iter()
        .filter(|line| *line == "WATCHDOG=1")
        .count();
    supervisor.hears("WATCHDOG=1", beats + 1);
    host.drain().await.expect_code(0);
    supervisor.hears("STOPPING=1", 1);
    assert_eq!(
        supervisor
            .heard
            .iter()
            .filter(|line| *line == "READY=1")
            .count(),
        1
    );
}

/// It compares times: alone.
mod measured {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_is_heard_three_times_in_the_time_that_its_supervisor_allows() {
        let redis = RedisServer::start();
        let (mut supervisor, host, _dir) = supervised(&redis).await;
        supervisor.hears("READY=1", 1);
        let begun = Instant::now();
        supervisor.hears("WATCHDOG=1", 5);
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(900 * 5), "{took:?}");
        host.drained().await;
    }
}

#[tokio::test]
async fn sighup_reads_the_configuration_again_and_says_what_is_wrong_with_it() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hostler.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("concurrency = 4\nbackoff.first = \"1s\"\n");
    let options = HostOptions::new(&redis).flag("config", path.to_str().unwrap());
    let host = options.ready().await;
    host.signal(Signal::SIGHUP);
    host.logs("SIGHUP: reading the configuration file again")
        .await;
    write("concurrency = 4\nbackoff.first = \"1\"\n");
    let wrong = "wrong rules are ignored: the active rules stay";
    host.logs(wrong).await;
    // Once, unless an operator asks.
    host.signal(Signal::SIGHUP);
    host.logs_times(wrong, 2).await;
    write("concurrency = 4\nbackoff.first = \"2s\"\n");
    host.logs("rules changed").await;
    host.drain().await.expect_code(0);
}
