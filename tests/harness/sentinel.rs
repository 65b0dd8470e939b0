//! A primary, its replica, and Sentinels that watch them, for one test.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::redis::{RawRedis, RedisOptions, RedisServer, eventually, free_port, program};

/// The name of the primary.
pub const MASTER: &str = "mymaster";

/// A running Sentinel; ended when dropped.
pub struct Sentinel {
    child: Option<Child>,
    port: u16,
    dir: TempDir,
    more: String,
}

impl Sentinel {
    fn start(watched: u16, quorum: usize, more: &str) -> Self {
        let port = free_port();
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {MASTER} 127.0.0.1 {watched} {quorum}\n\
             sentinel down-after-milliseconds {MASTER} 2000\n\
             sentinel failover-timeout {MASTER} 4000\n{more}\n"
        );
        std::fs::write(dir.path().join("sentinel.conf"), config).expect("a file can be written");
        let mut sentinel = Self {
            child: None,
            port,
            dir,
            more: more.to_owned(),
        };
        sentinel.restart();
        sentinel
    }

    /// End it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; then there is nothing to kill.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Start it again.
    pub fn restart(&mut self) {
        self.kill();
        let child = Command::new(program())
            .arg("sentinel.conf")
            .arg("--sentinel")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server can be started (apt-get install redis-server)");
        self.child = Some(child);
    }

    async fn raw(&self) -> Option<RawRedis> {
        let login = match self.more.contains("requirepass") {
            true => ":watching@",
            false => "",
        };
        let url = format!("redis://{login}127.0.0.1:{}", self.port);
        RawRedis::open(&url).await.ok()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A primary, a replica, and three Sentinels.
pub struct Watched {
    /// The primary at the start, and its replica.
    pub servers: [RedisServer; 2],
    /// The Sentinels.
    pub sentinels: Vec<Sentinel>,
}

impl Watched {
    /// With default options.
    pub async fn start() -> Self {
        Self::with(&RedisOptions::default(), "").await
    }

    /// With these options for both servers, and these lines for the Sentinels.
    pub async fn with(options: &RedisOptions, lines: &str) -> Self {
        let options = options.clone().tcp().set("repl-diskless-sync-delay", "0");
        let options = options.set("repl-ping-replica-period", "1");
        let primary = options.clone().start();
        let port = primary.port();
        let of = ["127.0.0.1", &port.to_string()];
        let replica = options.words("replicaof", &of).start();
        let sentinels = (0..3).map(|_| Sentinel::start(port, 2, lines)).collect();
        let watched = Self {
            servers: [primary, replica],
            sentinels,
        };
        watched.healed().await;
        watched
    }

    /// The URL of all Sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let ports = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port));
        let sentinels = ports.collect::<Vec<_>>().join(",");
        format!("redis+sentinel://{sentinels}/{MASTER}/0")
    }

    /// The place of the server that most Sentinels which run call the primary.
    pub async fn primary(&self) -> usize {
        for sentinel in &self.sentinels {
            let Some(raw) = sentinel.raw().await else {
                continue;
            };
            let answer = raw
                .ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {MASTER}"))
                .await;
            let (_, port): (String, u16) = redis::from_redis_value(answer).expect("an address");
            return usize::from(self.servers[0].port() != port);
        }
        unreachable!("no Sentinel runs")
    }

    /// A connection to the primary.
    pub async fn raw(&self) -> RawRedis {
        self.servers[self.primary().await].raw().await
    }

    /// Wait until the Sentinels know each other and the replica, and the replica has caught up.
    pub async fn healed(&self) {
        for sentinel in &self.sentinels {
            eventually("a Sentinel knows the others", async || {
                let Some(raw) = sentinel.raw().await else {
                    return false;
                };
                let facts = raw.ask(&format!("SENTINEL MASTER {MASTER}")).await;
                let facts: std::collections::HashMap<String, String> =
                    redis::from_redis_value(facts).expect("names and values");
                facts["num-other-sentinels"] == "2"
                    && facts["num-slaves"] == "1"
                    && facts["flags"] == "master"
            })
            .await;
        }
        let replica = 1 - self.primary().await;
        let url = self.servers[replica].url();
        eventually("the replica has caught up", async || {
            // A Sentinel that makes it a replica closes its connections.
            let Ok(raw) = RawRedis::open(&url).await else {
                return false;
            };
            let Ok(info) = raw.try_ask("INFO replication").await else {
                return false;
            };
            let info: String = redis::from_redis_value(info).expect("text");
            info.contains("role:slave") && info.contains("master_link_status:up")
        })
        .await;
    }

    /// Wait until another server than this is the primary, and takes writes.
    pub async fn replaced(&self, old: usize) {
        eventually("the Sentinels name another primary", async || {
            self.primary().await != old
        })
        .await;
        let raw = self.servers[1 - old].raw().await;
        eventually("it takes writes", async || {
            raw.text("INFO replication").await.contains("role:master")
        })
        .await;
    }
}
