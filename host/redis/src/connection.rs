//! Connections: opened with a deadline, asked with a deadline, dropped after a failure.
//!
//! - `node_link`: a connection to one server.
//! - `link`: what the rest of the code uses. It sends each command to the server that has its key.
//! - `entries`: entries of a stream, which are parsed as they arrive.
//! - `discovery`: which server that is, on a cluster or behind Sentinels.
//! - `subscribed`: connections with a subscription.
//!
//! Nothing here repeats a command that may have been carried out: the caller (in the end `runtime`) decides
//! when to ask again. A command that a node of a cluster refused because another one has the key is sent to
//! that one.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, Pipeline, ProtocolVersion, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Error, bounded};
use crate::hint::{PLAIN_QUESTION, TLS_QUESTION};
use crate::target::{Secret, Target};
use crate::topology::{Form, Node, Topology};

mod discovery;
mod entries;
mod greeting;
mod key;
mod key_watch;
mod link;
mod node_link;
mod socket;
mod subscribed;

pub use discovery::Owners;
use entries::Intake;
pub use entries::{ENTRY_HELD, Entries, PART_HELD};
use greeting::Greeting;
pub use key_watch::{Bell, KeyWatch, Mark};
pub use link::Link;
use socket::{Broke, Progress, Watched};
pub use subscribed::Subscribed;

/// How long nothing may come from the server while a command waits for it: a blocking command, beyond its
/// own wait. As long as bytes move, a large request or reply may take longer. Opening a connection, login
/// included, may take as long.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// How long a probe may take: with the longest pause between two probes, a server that answers again is
/// found within five seconds.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// After a reply of this number of bytes the connection is opened anew: the buffer that took it never
/// shrinks.
const BUFFER_MAX: u64 = 16 << 20;

/// How long a replica may take to confirm what must not be lost (`durability = "replica"`).
const REPLICA_DEADLINE: Duration = Duration::from_secs(1);
const WAIT: &str = "WAIT";
/// How long a server may take to say who serves. It is asked beside others.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(1);

/// Opens connections to one [`Target`]. Its copies share what they know of the servers.
#[derive(Clone, Debug)]
pub struct Connector {
    target: Arc<Target>,
    topology: Arc<Topology>,
    /// One question at a time, and when the last one ended.
    discovery: Arc<discovery::Turn>,
    name: Arc<str>,
    deadline: Duration,
    is_durable: bool,
}

impl Connector {
    /// Connections to `target` with this name (`CLIENT LIST` shows it; characters that Redis refuses
    /// there are replaced).
    pub fn new(target: Target, name: &str) -> Self {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_graphic() { c } else { '_' })
            .take(64)
            .collect();
        Self {
            topology: Arc::new(Topology::new(&target.servers)),
            discovery: Arc::default(),
            target: Arc::new(target),
            name: name.into(),
            deadline: DEADLINE,
            is_durable: false,
        }
    }

    /// The same; a write that a failover must not lose is confirmed by a replica before it counts as done.
    /// A write that no replica confirms within a second is unknown: [`Error::Deadline`] of `WAIT`.
    #[must_use]
    pub fn durable(mut self, is_durable: bool) -> Self {
        self.is_durable = is_durable;
        self
    }

    /// Whether a replica confirms what a failover must not lose.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// The same with another deadline than [`DEADLINE`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The server.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A connection for `purpose`, opened when it is first used. On a cluster, commands without a key go to
    /// any node: see [`Link::of`].
    pub fn link(&self, purpose: &str) -> Link {
        Link::new(self.clone(), format!("{}:{purpose}", self.name))
    }

    fn late(&self, node: &Node, command: &'static str, after: Duration) -> Error {
        if command == "CONNECT" && self.target.is_tls() {
            // A server that does not speak TLS may wait for more.
            let after = humantime::format_duration(after);
            return Error::Connection {
                target: node.text().to_owned(),
                detail: format!("no connection within {after}: {TLS_QUESTION}"),
            };
        }
        Error::Deadline {
            target: node.text().to_owned(),
            command,
            after,
        }
    }

    /// Open a connection to a server, and note what it says of itself.
    async fn open(&self, node: &Node, name: &str, serial: u64) -> Result<Opened, Error> {
        let opening = self.open_and_log_in(node, name, serial, no_timeouts(), false);
        let opened = match timeout(self.deadline, opening).await {
            Ok(Err(Error::Connection { .. })) if socket::is_crowded(node.address()).await => {
                return Err(too_many_clients());
            }
            Ok(result) => result?,
            Err(_) => return Err(self.late(node, "CONNECT", self.deadline)),
        };
        self.greeted(node, &opened.1)?;
        Ok(opened)
    }

    /// What a server said of itself: a node of a cluster, a replica.
    fn greeted(&self, node: &Node, greeting: &Greeting) -> Result<(), Error> {
        match self.topology.form() {
            // Said once.
            Form::One if greeting.is_cluster && self.topology.becomes_cluster() => {
                let address = node.text();
                tracing::info!(
                    address,
                    "this server is a node of a cluster: its other nodes are found, too"
                );
            }
            Form::Sentinel if greeting.is_replica => {
                node.suspect();
                return Err(Error::refused(
                    "CONNECT",
                    "READONLY",
                    "the server that the Sentinels named is a replica",
                ));
            }
            _ => {}
        }
        node.trust();
        Ok(())
    }

    async fn open_and_log_in(
        &self,
        node: &Node,
        name: &str,
        serial: u64,
        config: AsyncConnectionConfig,
        subscribes: bool,
    ) -> Result<Opened, Error> {
        let target = &self.target;
        let password = target.password()?;
        // The library does not log in, choose a database or send `CLIENT SETINFO`: its errors hide the
        // error code of Redis.
        let mut settings = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        if subscribes {
            // Messages only come by RESP3. The library insists on asking for it itself, and a server
            // with a password accepts that with a login only.
            settings = settings.set_protocol(ProtocolVersion::RESP3);
            if let Some(password) = &password {
                let username = target.username.as_deref().unwrap_or("default");
                settings = settings
                    .set_username(username)
                    .set_password(password.reveal());
            }
        }
        let tls = match node.address() {
            ConnectionAddr::TcpTls { .. } => Some(target.certificates()?),
            _ => None,
        };
        let socket = socket::connect(node.address(), tls).await;
        let socket = socket.map_err(|error| broken(node, &error))?;
        let progress = Arc::new(Progress::new());
        let intake = Arc::<Intake>::default();
        let watched = Watched::new(socket, Arc::clone(&progress), Arc::clone(&intake));
        let opened = MultiplexedConnection::new_with_config(&settings, watched, config).await;
        let is_plain = matches!(node.address(), ConnectionAddr::Tcp(..));
        let explained = |error| explained(error, progress.broke(), is_plain);
        let opened = opened.map_err(|error| explained(broken(node, &error)));
        let (mut connection, traffic) = opened?;
        let mut driver = JoinSet::new();
        driver.spawn(traffic);
        let greeting = self.log_in(node, &mut connection, password, name).await;
        let greeting = greeting.map_err(explained)?;
        let session = Session {
            connection,
            serial,
            progress,
            intake,
            driver: Arc::new(driver),
        };
        Ok((session, greeting))
    }

    /// Log in, choose the database and set the name, in one round trip. Returns what the server says of
    /// itself, as far as the user may know it.
    async fn log_in(
        &self,
        node: &Node,
        connection: &mut MultiplexedConnection,
        password: Option<Secret>,
        name: &str,
    ) -> Result<Greeting, Error> {
        let mut pipeline = Pipeline::new();
        let mut login = 0;
        let username = self.target.username.as_deref();
        if self.target.resp3 {
            let hello = pipeline.cmd("HELLO").arg(3);
            if let Some(password) = &password {
                hello
                    .arg("AUTH")
                    .arg(username.unwrap_or("default"))
                    .arg(password.reveal());
            }
            login += 1;
        } else if let Some(password) = &password {
            pipeline.cmd("AUTH");
            if let Some(username) = username {
                pipeline.arg(username);
            }
            pipeline.arg(password.reveal());
            login += 1;
        }
        let select = login;
        let selects = usize::from(self.target.database != 0);
        if selects == 1 {
            pipeline.cmd("SELECT").arg(self.target.database);
        }
        if !self.target.resp3 {
            // Without a version it changes nothing, and returns the same as `HELLO 3`.
            pipeline.cmd("HELLO");
        }
        pipeline.cmd("CLIENT").arg("SETNAME").arg(name);
        pipeline.cmd("CLIENT").arg("ID");
        let count = pipeline.len();
        let mut replies = connection
            .send_packed_commands(&pipeline, 0, count)
            .await
            .map_err(|error| broken(node, &error))?;
        let id = replies.pop();
        let said = if self.target.resp3 {
            0
        } else {
            select + selects
        };
        let greeting = replies.get(said).map(Greeting::of).unwrap_or_default();
        for (index, reply) in replies.iter().enumerate().take(select + selects) {
            if let Value::ServerError(error) = reply {
                let (command, detail) = if index < select {
                    // An old server repeats the arguments of a command that it does not know.
                    ("AUTH", login_detail(error.code(), error.details()))
                } else {
                    ("SELECT", error.details().unwrap_or_default())
                };
                return Err(Error::refused(command, error.code(), detail));
            }
        }
        match id {
            Some(Value::Int(id)) => Ok(Greeting {
                client_id: Some(id),
                ..greeting
            }),
            // Without any login, this is the first command that Redis answers.
            Some(Value::ServerError(error)) if error.code() == "NOAUTH" => Err(Error::refused(
                "AUTH",
                "NOAUTH",
                "the server wants a password",
            )),
            Some(Value::ServerError(error))
                if error
                    .details()
                    .is_some_and(|d| d.contains("max number of clients")) =>
            {
                Err(too_many_clients())
            }
            _ => Ok(greeting),
        }
    }
}

fn too_many_clients() -> Error {
    Error::refused("CONNECT", "MAXCLIENTS", "max number of clients reached")
}

fn broken(node: &Node, error: &(impl std::error::Error + 'static)) -> Error {
    let mut detail = bounded(&error.to_string());
    if is_no_tls(error) {
        detail.push_str(&format!(": {TLS_QUESTION}"));
    }
    Error::Connection {
        target: node.text().to_owned(),
        detail,
    }
}

/// An error of a connection that was being opened, by what the socket met: the library only says that the
/// connection is gone.
fn explained(mut error: Error, broke: Option<&Broke>, is_plain: bool) -> Error {
    if let Error::Connection { detail, .. } = &mut error {
        match broke {
            Some(Broke::Failed(text)) => bounded(text).clone_into(detail),
            Some(Broke::Silent) if is_plain => {
                *detail = format!("the server hung up before it answered: {PLAIN_QUESTION}");
            }
            _ => {}
        }
    }
    error
}

/// Whether the server answered with something that is not TLS.
fn is_no_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // `source` of an I/O error skips the error that it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>();
        let wrapped = wrapped.and_then(|error| error.get_ref()?.downcast_ref());
        if let Some(rustls::Error::InvalidMessage(_)) = wrapped.or(error.downcast_ref()) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The library's own timeouts are off: its response timeout would cut blocking reads.
fn no_timeouts() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// The text of a refused login, without secrets.
fn login_detail<'a>(code: &str, detail: Option<&'a str>) -> &'a str {
    match (code, detail) {
        ("WRONGPASS" | "NOAUTH" | "NOPERM" | "LOADING" | "NOPROTO", Some(detail)) => detail,
        (_, Some(detail)) if detail.contains("max number of clients") => {
            "max number of clients reached"
        }
        (_, Some(detail)) if detail.contains("without any password configured") => {
            "the server has no password for this user, but one is given"
        }
        _ => "login refused",
    }
}

/// A new connection, and what the server says of itself.
type Opened = (Session, Greeting);

/// An open connection.
#[derive(Clone)]
struct Session {
    connection: MultiplexedConnection,
    serial: u64,
    progress: Arc<Progress>,
    intake: Arc<Intake>,
    /// The task that writes and reads; it ends with the last use of the connection.
    #[expect(dead_code, reason = "held for its drop")]
    driver: Arc<JoinSet<()>>,
}
