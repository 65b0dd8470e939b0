//! A real `redis-server` for one test: on its own Unix socket (and TCP port, if asked) in its own
//! directory, ended by its own process handle.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value};
use tempfile::TempDir;

/// For how long anything that a test waits for may take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How the server is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    tcp: bool,
    tls: Option<TlsOptions>,
}

/// PEM files of a server that speaks TLS on its TCP port.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Certificate of the authority that clients' certificates are checked with.
    pub ca: PathBuf,
    /// The server's certificate.
    pub cert: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// Whether clients must show a certificate.
    pub clients: bool,
}

impl RedisOptions {
    /// A configuration line: `set("maxmemory", "4mb")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.arguments.push(format!("--{name}"));
        self.arguments.push(value.to_owned());
        self
    }

    /// A configuration line of several words: `words("rename-command", &["KEYS", ""])`.
    #[must_use]
    pub fn words(mut self, name: &str, words: &[&str]) -> Self {
        self.arguments.push(format!("--{name}"));
        let words = words.iter().map(|word| (*word).to_owned());
        self.arguments.extend(words);
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Keep an append-only file, synced every second.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.set("appendonly", "yes")
    }

    /// Refuse writes beyond this much memory.
    #[must_use]
    pub fn maxmemory(self, size: &str) -> Self {
        self.set("maxmemory", size)
    }

    /// A user, as in `ACL SETUSER`: `user("bob on >secret ~* +@all")`.
    #[must_use]
    pub fn user(mut self, rules: &str) -> Self {
        self.arguments.push("--user".to_owned());
        self.arguments
            .extend(rules.split_whitespace().map(str::to_owned));
        self
    }

    /// Listen on a free TCP port as well.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Listen on a free TCP port, with TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Start it, and wait until it answers.
    #[must_use]
    pub fn start(self) -> RedisServer {
        let dir = tempfile::Builder::new()
            .prefix("redis")
            .tempdir()
            .expect("a temporary directory can be made");
        let port = (self.tcp || self.tls.is_some()).then(free_port);
        let mut server = RedisServer {
            dir,
            port,
            options: self,
            child: None,
        };
        server.run();
        server
    }
}

/// The server that tests start: `redis-server`, or the one that `HOSTLER_TEST_REDIS_SERVER` names, to see
/// whether it behaves the same: `valkey-server`, a newer Redis.
#[must_use]
pub fn program() -> OsString {
    let named = std::env::var_os("HOSTLER_TEST_REDIS_SERVER");
    named.unwrap_or_else(|| "redis-server".into())
}

/// The rules of this user, as `docs/security.md` states them, with its name before them.
///
/// # Panics
///
/// The page has no user with this name.
pub fn documented_user(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = std::fs::read_to_string(docs).expect("the page is there");
    let begin = format!("```acl\nuser {name} ");
    let rules = text
        .split_once(&begin)
        .and_then(|(_, rest)| rest.split_once("\n```"));
    let (rules, _) = rules.expect("the page has this user");
    format!("{name} {rules}")
}

/// Ports that Linux gives to no outgoing connection: a client may not take the port of a server that starts, or of
/// one that was killed and comes back.
const PORTS: Range<u16> = 10_000..32_000;

/// A port that no process listens on, and that this process has not handed out before.
pub fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Processes that run at the same time begin far from each other.
    let begin = std::process::id() as usize * 701;
    let ports = std::iter::repeat_with(|| {
        let place = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        PORTS.start + u16::try_from(place % PORTS.len()).expect("a port")
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = ports.take(PORTS.len()).find(is_free);
    port.expect("the loopback has a free port")
}

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct RedisServer {
    dir: TempDir,
    port: Option<u16>,
    options: RedisOptions,
    child: Option<Child>,
}

impl RedisServer {
    /// With default options, without persistence.
    #[must_use]
    pub fn start() -> Self {
        RedisOptions::default().start()
    }

    /// The directory with its socket, data and log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Its URL, by the Unix socket.
    #[must_use]
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its TCP port, if it has one.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.expect("the test asked for a TCP port")
    }

    /// Kill it (`SIGKILL`) and wait for its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; then there is nothing to kill.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Start it again with the same data, after a kill if need be.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// The newest part of its append-only file: commands are written to its end.
    fn append_only_file(&self) -> std::io::Result<PathBuf> {
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(self.dir().join("appendonlydir"))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // appendonly.aof.2.incr.aof
            let number = name.strip_suffix(".incr.aof");
            let number = number.and_then(|name| name.rsplit('.').next()?.parse::<u64>().ok());
            if let Some(number) = number {
                parts.push((number, path));
            }
        }
        let newest = parts.into_iter().max().map(|(_, path)| path);
        newest.ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// How many bytes that part has: to remember, for [`RedisServer::lose_power`].
    ///
    /// # Errors
    /// There is no such file yet.
    pub fn append_only_bytes(&self) -> std::io::Result<u64> {
        Ok(std::fs::metadata(self.append_only_file()?)?.len())
    }

    /// Kill it, and cut its append-only file to `bytes` bytes: data that was not on the disk is lost.
    ///
    /// # Errors
    /// There is no such file.
    pub fn lose_power(&mut self, bytes: u64) -> std::io::Result<()> {
        self.kill();
        let file = File::options().write(true).open(self.append_only_file()?)?;
        let length = file.metadata()?.len();
        file.set_len(bytes.min(length))
    }

    /// Whether it was not killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Stop it from running (`SIGSTOP`), or let it run again.
    pub fn pause(&self, stands: bool) {
        let signal = match stands {
            true => Signal::SIGSTOP,
            false => Signal::SIGCONT,
        };
        let pid = i32::try_from(self.pid()).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("a child can be signalled");
    }

    /// The process id of the running server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// A connection for the test itself.
    pub async fn raw(&self) -> RawRedis {
        RawRedis::open(&self.url())
            .await
            .expect("a server that answered can be connected to")
    }

    fn run(&mut self) {
        let log = self.dir.path().join("redis.log");
        let mut command = Command::new(program());
        let variables = self.options.variables.iter();
        command
            .envs(variables.map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .args(["--save", "", "--daemonize", "no"])
            .args(["--unixsocketperm", "700", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.dir.path())
            .args(self.listening())
            .args(&self.options.arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&log).expect("the log can be written"))
            .stderr(Stdio::null());
        // A socket that a killed server left behind would look like one that starts.
        drop(std::fs::remove_file(self.socket()));
        let child = command
            .spawn()
            .expect("redis-server can be started (apt-get install redis-server)");
        self.child = Some(child);
        self.wait_until_it_answers(&log);
    }

    fn listening(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| {
            arguments.push(name.into());
            arguments.push(value);
        };
        let port = self.port.unwrap_or(0).to_string();
        add("--bind", "127.0.0.1".into());
        match &self.options.tls {
            Some(tls) => {
                add("--port", "0".into());
                add("--tls-port", port.into());
                add("--tls-ca-cert-file", tls.ca.clone().into());
                add("--tls-cert-file", tls.cert.clone().into());
                add("--tls-key-file", tls.key.clone().into());
                let clients = if tls.clients { "yes" } else { "no" };
                add("--tls-auth-clients", clients.into());
            }
            None => add("--port", port.into()),
        }
        arguments
    }

    fn wait_until_it_answers(&mut self, log: &Path) {
        let begun = Instant::now();
        loop {
            if let Some(child) = &mut self.child
                && let Ok(Some(status)) = child.try_wait()
            {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                assert!(false_with(&log), "redis-server ended with {status}:\n{log}");
            }
            if ping(&self.socket()) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "redis-server does not answer on {}",
                self.socket().display()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether the server answers a `PING`: any answer but `LOADING` will do, `NOAUTH` as well.
fn ping(socket: &Path) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket) else {
        return false;
    };
    let mut answer = [0; 64];
    let asked = stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .and_then(|()| stream.write_all(b"PING\r\n"))
        .and_then(|()| stream.read(&mut answer));
    matches!(asked, Ok(length) if length > 0 && !answer.starts_with(b"-LOADING"))
}

/// A connection that a test uses to set a scene and to look at the result.
#[derive(Clone)]
pub struct RawRedis {
    connection: MultiplexedConnection,
}

impl RawRedis {
    /// Connect to a URL.
    ///
    /// # Errors
    /// What the library says.
    pub async fn open(url: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = Client::open(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(Self { connection })
    }

    /// Ask a command whose words have no spaces in them. A refusal ends the test.
    pub async fn ask(&self, command: &str) -> Value {
        self.try_ask(command)
            .await
            .unwrap_or_else(|error| refused(command, &error))
    }

    /// The same, with the refusal as a value.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn try_ask(&self, command: &str) -> RedisResult<Value> {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.try_ask_words(&words).await
    }

    /// Ask a command whose words may be anything.
    pub async fn ask_words(&self, words: &[&[u8]]) -> Value {
        self.try_ask_words(words)
            .await
            .unwrap_or_else(|error| refused("a command", &error))
    }

    /// The same, with the refusal as a value.
    ///
    /// # Errors
    /// What Redis says.
    pub async fn try_ask_words(&self, words: &[&[u8]]) -> RedisResult<Value> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query_async(&mut self.connection.clone()).await
    }

    /// Run many commands.
    ///
    /// # Panics
    ///
    /// If one is refused.
    pub async fn run(&self, pipeline: &redis::Pipeline) {
        if let Err(error) = pipeline.exec_async(&mut self.connection.clone()).await {
            refused("a pipeline", &error);
        }
    }

    /// The integer that a command answers.
    pub async fn number(&self, command: &str) -> i64 {
        let value = self.ask(command).await;
        redis::from_redis_value(value).unwrap_or_else(|error| {
            assert!(false_with(""), "{command} answered no number: {error}");
            0
        })
    }

    /// The text that a command answers.
    pub async fn text(&self, command: &str) -> String {
        let value = self.ask(command).await;
        redis::from_redis_value(value).unwrap_or_else(|error| {
            assert!(false_with(""), "{command} answered no text: {error}");
            String::new()
        })
    }

    /// The number behind this name in a section of `INFO`; 0 where the name is missing.
    pub async fn info(&self, section: &str, name: &str) -> u64 {
        let text = self.text(&format!("INFO {section}")).await;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
            let digits = digits.unwrap_or_default();
            digits.parse().expect("INFO has a number behind this name")
        })
    }

    /// How many commands the server has carried out, those in scripts and this one among them.
    pub async fn commands(&self) -> u64 {
        self.info("stats", "total_commands_processed:").await
    }

    /// Add an entry with this body; returns its id.
    pub async fn add(&self, stream: &str, body: &str) -> String {
        let words = [
            b"XADD".as_slice(),
            stream.as_bytes(),
            b"*",
            b"_payload",
            body.as_bytes(),
        ];
        let id = self.ask_words(&words).await;
        redis::from_redis_value(id).expect("XADD answers an id")
    }

    /// What is pending in a group, in order.
    pub async fn pending(&self, stream: &str, group: &str) -> Vec<Pending> {
        let value = self
            .ask(&format!("XPENDING {stream} {group} - + 100000"))
            .await;
        let rows: Vec<(String, String, u64, u32)> =
            redis::from_redis_value(value).expect("XPENDING answers rows of four");
        rows.into_iter()
            .map(|(id, consumer, idle_ms, count)| Pending {
                id,
                consumer,
                idle_ms,
                count,
            })
            .collect()
    }

    /// The entries of a stream: id, and fields in order.
    pub async fn entries(&self, stream: &str) -> Vec<Entry> {
        let value = self.ask(&format!("XRANGE {stream} - +")).await;
        redis::from_redis_value(value).expect("XRANGE answers ids and fields")
    }
}

/// An entry of a stream: its id, its fields in order (name, value, name, value, ...).
pub type Entry = (String, Vec<Vec<u8>>);

/// A pending delivery as Redis keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pending {
    /// The entry.
    pub id: String,
    /// Who owns it.
    pub consumer: String,
    /// For how long it was not renewed.
    pub idle_ms: u64,
    /// The native count.
    pub count: u32,
}

fn refused(command: &str, error: &redis::RedisError) -> Value {
    assert!(false_with(""), "redis refused {command}: {error}");
    Value::Nil
}

/// Always false: an assertion that must fail, where a plain `panic!` is not allowed.
fn false_with(_: &str) -> bool {
    false
}

/// Wait until a condition holds; after [`PATIENCE`] the test has failed.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    eventually_or(|| what.to_owned(), condition).await;
}

/// The same; the text of a failure is made when it is needed.
pub async fn eventually_or(what: impl Fn() -> String, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    loop {
        let look = Instant::now();
        if condition().await {
            return;
        }
        let patient = begun.elapsed() < PATIENCE;
        assert!(patient, "never happened: {}", what());
        tokio::time::sleep(pause_after(look.elapsed())).await;
    }
}

/// How long to wait after a look that took this time: looks that run a program leave the cores to others.
pub fn pause_after(look: Duration) -> Duration {
    (2 * look).clamp(Duration::from_millis(5), Duration::from_millis(500))
}
