//! Connections: opened with a deadline, asked with a deadline, dropped after a failure.
//!
//! Nothing here retries: the caller (in the end `runtime`) decides when to ask again.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, ProtocolVersion, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::redis::error::{Error, bounded};
use crate::redis::reply;
use crate::redis::target::{Secret, Target};

mod socket;
mod subscribed;

use socket::{Progress, Watched};
pub(crate) use subscribed::Subscribed;

/// How long nothing may come from the server while a command waits for it: a blocking command, beyond its
/// own wait. As long as bytes move, a large request or reply may take longer. Opening a connection, login
/// included, may take as long.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// How long a probe may take: with the longest pause between two probes, a server that answers again is
/// found within five seconds.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// After a reply of so many bytes the connection is opened anew: the buffer that took it never shrinks.
const BUFFER_MAX: u64 = 16 << 20;

/// Asked where a `rediss://` URL may name a port without TLS.
const TLS_QUESTION: &str = "does this port speak TLS?";

/// Opens connections to one [`Target`].
#[derive(Clone, Debug)]
pub struct Connector {
    target: Arc<Target>,
    name: Arc<str>,
    deadline: Duration,
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
            target: Arc::new(target),
            name: name.into(),
            deadline: DEADLINE,
        }
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

    /// Connections to another node of the same cluster, with the same login: `host:port`. A node that does
    /// not know the name of its host leaves it out: then it is that of this server.
    pub(crate) fn at(&self, node: &str) -> Option<Self> {
        let (host, port) = node.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let mut target = (*self.target).clone();
        match &mut target.address {
            ConnectionAddr::Tcp(own, own_port)
            | ConnectionAddr::TcpTls {
                host: own,
                port: own_port,
                ..
            } => {
                if !host.is_empty() {
                    host.clone_into(own);
                }
                *own_port = port;
            }
            _ if host.is_empty() => return None,
            address => *address = ConnectionAddr::Tcp(host.to_owned(), port),
        }
        Some(Self {
            target: Arc::new(target),
            ..self.clone()
        })
    }

    /// A connection for `purpose`, opened when it is first used.
    pub fn link(&self, purpose: &str) -> Link {
        Link {
            connector: self.clone(),
            name: format!("{}:{purpose}", self.name),
            session: Mutex::new(None),
            opened: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            client_id: AtomicI64::new(NO_CLIENT_ID),
        }
    }

    fn late(&self, command: &'static str, after: Duration) -> Error {
        if command == "CONNECT" && self.target.is_tls() {
            // A server that does not speak TLS may wait for more.
            let after = humantime::format_duration(after);
            return Error::Connection {
                target: self.target.address(),
                detail: format!("no connection within {after}: {TLS_QUESTION}"),
            };
        }
        Error::Deadline {
            target: self.target.address(),
            command,
            after,
        }
    }

    async fn open(&self, name: &str, serial: u64) -> Result<Opened, Error> {
        let opening = self.open_and_log_in(name, serial, no_timeouts(), false);
        match timeout(self.deadline, opening).await {
            Ok(result) => result,
            Err(_) => Err(self.late("CONNECT", self.deadline)),
        }
    }

    async fn open_and_log_in(
        &self,
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
        let tls = match &target.address {
            ConnectionAddr::TcpTls { .. } => Some(target.certificates()?),
            _ => None,
        };
        let socket = socket::connect(&target.address, tls).await;
        let socket = socket.map_err(|error| self.broken(&error))?;
        let progress = Arc::new(Progress::new());
        let watched = Watched::new(socket, Arc::clone(&progress));
        let opened = MultiplexedConnection::new_with_config(&settings, watched, config).await;
        let (mut connection, traffic) = opened.map_err(|error| self.broken(&error))?;
        let mut driver = JoinSet::new();
        driver.spawn(traffic);
        let client_id = self.log_in(&mut connection, password, name).await?;
        let session = Session {
            connection,
            serial,
            progress,
            driver: Arc::new(driver),
        };
        Ok((session, client_id))
    }

    /// Log in, choose the database and set the name, in one round trip. Returns the client id, if the
    /// user may know it.
    async fn log_in(
        &self,
        connection: &mut MultiplexedConnection,
        password: Option<Secret>,
        name: &str,
    ) -> Result<Option<i64>, Error> {
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
        pipeline.cmd("CLIENT").arg("SETNAME").arg(name);
        pipeline.cmd("CLIENT").arg("ID");
        let count = pipeline.len();
        let mut replies = connection
            .send_packed_commands(&pipeline, 0, count)
            .await
            .map_err(|error| self.broken(&error))?;
        let id = replies.pop();
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
            Some(Value::Int(id)) => Ok(Some(id)),
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
                Err(Error::refused(
                    "CONNECT",
                    "MAXCLIENTS",
                    "max number of clients reached",
                ))
            }
            _ => Ok(None),
        }
    }

    fn broken(&self, error: &(impl std::error::Error + 'static)) -> Error {
        let mut detail = bounded(&error.to_string());
        if is_no_tls(error) {
            detail.push_str(&format!(": {TLS_QUESTION}"));
        }
        Error::Connection {
            target: self.target.address(),
            detail,
        }
    }
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

/// A new connection, and its id if the user may know it.
type Opened = (Session, Option<i64>);

/// An open connection.
#[derive(Clone)]
struct Session {
    connection: MultiplexedConnection,
    serial: u64,
    progress: Arc<Progress>,
    /// The task that writes and reads; it ends with the last use of the connection.
    #[expect(dead_code, reason = "held for its drop")]
    driver: Arc<JoinSet<()>>,
}

/// A connection. The first use opens it; after a failure the next use opens it again.
///
/// Concurrent callers share it, in pipelines.
pub struct Link {
    connector: Connector,
    name: String,
    session: Mutex<Option<Session>>,
    opened: AtomicU64,
    /// How often Redis had forgotten a script.
    forgotten: AtomicU64,
    /// Of the last connection that was opened.
    client_id: AtomicI64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.name).finish()
    }
}

/// Redis counts clients from 1.
const NO_CLIENT_ID: i64 = 0;

impl Link {
    /// Open the connection if it is not open.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn reach(&self) -> Result<(), Error> {
        self.session().await.map(drop)
    }

    /// Ask one command; Redis' refusal is an error.
    ///
    /// # Errors
    /// Any of [`Error`] but `Missing`; after one of class `Reconnect` the next call connects anew.
    pub async fn call(&self, command: &'static str, cmd: &Cmd) -> Result<Value, Error> {
        self.call_waiting(command, cmd, Duration::ZERO).await
    }

    /// The same for a command that may block for `wait`.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn call_waiting(
        &self,
        command: &'static str,
        cmd: &Cmd,
        wait: Duration,
    ) -> Result<Value, Error> {
        let deadline = wait + self.connector.deadline;
        let asked = async |mut session: Session| {
            let reply = session.connection.send_packed_command(cmd).await;
            reply::accepted(command, reply.map_err(|e| self.connector.broken(&e))?)
        };
        self.ask(command, deadline, asked).await
    }

    /// Ask for the number that a command of one key answers: `XLEN`, `LLEN`.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub(crate) async fn count(&self, command: &'static str, key: &str) -> Result<u64, Error> {
        let answer = self.call(command, redis::cmd(command).arg(key)).await?;
        reply::count(command, &answer)
    }

    /// Ask several commands in one round trip. The reply to a refused one is a [`Value::ServerError`].
    ///
    /// # Errors
    /// `Connection` or `Deadline`: the effect of all of them is unknown.
    pub async fn pipeline(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        let count = pipeline.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let asked = async |mut session: Session| {
            let sent = session.connection.send_packed_commands(pipeline, 0, count);
            let values = sent.await.map_err(|e| self.connector.broken(&e))?;
            if values.len() != count {
                return Err(Error::Connection {
                    target: self.connector.target.address(),
                    detail: format!("{} replies to {count} commands", values.len()),
                });
            }
            Ok((values, session.serial))
        };
        let (values, serial) = self.ask(command, self.connector.deadline, asked).await?;
        let refusals = values.iter().filter_map(|value| match value {
            Value::ServerError(error) => {
                let detail = error.details().unwrap_or_default();
                Some(Error::refused(command, error.code(), detail))
            }
            _ => None,
        });
        if refusals
            .into_iter()
            .any(|error| error.wants_new_connection())
        {
            self.forget(serial).await;
        }
        Ok(values)
    }

    /// Ask on an open connection. The deadline covers the wait for another caller that opens it, and the
    /// opening. Then it counts from the last byte that moved: so a connection that hangs delays no caller
    /// longer than its own deadline, and one that is slow is not given up.
    async fn ask<T>(
        &self,
        command: &'static str,
        deadline: Duration,
        asked: impl AsyncFnOnce(Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let late = |command| Err(self.connector.late(command, deadline));
        let session = match timeout(deadline, self.session()).await {
            Ok(session) => session?,
            Err(_) => return late("CONNECT"),
        };
        let (serial, progress) = (session.serial, Arc::clone(&session.progress));
        let before = progress.received();
        let reply = progress.wait_for(deadline, asked(session)).await;
        let reply = reply.unwrap_or_else(|| late(command));
        let is_bloated = progress.received() - before > BUFFER_MAX;
        // A new connection may help. A former primary keeps refusing on the old connection while the
        // name already leads to the new primary; a changed password is read again.
        if is_bloated || reply.as_ref().is_err_and(Error::wants_new_connection) {
            self.forget(serial).await;
        }
        reply
    }

    /// Check that the server takes `write` and answers `read`, within a short deadline. A replica, a
    /// server that cannot save, or one without its replicas refuses writes. A missing right says nothing
    /// about the server, and is not an error here. When the deadline has passed, the next call opens a new
    /// connection.
    ///
    /// # Errors
    /// `Deadline`, and those of the two.
    pub(crate) async fn probe(
        &self,
        command: &'static str,
        write: impl Future<Output = Result<(), Error>>,
        read: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let unless_forbidden = |result: Result<(), Error>| match result {
            Err(error) if error.is_missing_right() => Ok(()),
            result => result,
        };
        let probing = async {
            unless_forbidden(write.await)?;
            unless_forbidden(read.await)
        };
        let (deadline, probing) = (PROBE_DEADLINE, pin!(probing));
        let open = self.session.try_lock().ok().and_then(|slot| slot.clone());
        let probed = match open {
            // Behind a large reply, a probe waits as long as bytes move.
            Some(session) => session.progress.wait_for(deadline, probing).await,
            None => timeout(deadline, probing).await.ok(),
        };
        if let Some(probed) = probed {
            return probed;
        }
        // If another task holds the lock, it is opening a new connection.
        if let Ok(mut slot) = self.session.try_lock() {
            *slot = None;
        }
        Err(self.connector.late(command, PROBE_DEADLINE))
    }

    /// The id of the connection, if one was opened and the user may know it.
    pub fn client_id(&self) -> Option<i64> {
        let id = self.client_id.load(Ordering::Acquire);
        (id != NO_CLIENT_ID).then_some(id)
    }

    /// How often a connection was opened.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// How often Redis had forgotten a script that was to be run here.
    pub fn scripts_forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Redis had forgotten a script.
    pub(crate) fn script_was_forgotten(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection as the client library has it, without deadlines: for `hostler bench`.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub(crate) async fn plain(&self) -> Result<MultiplexedConnection, Error> {
        Ok(self.session().await?.connection)
    }

    /// Forget the connection: the next call opens a new one.
    pub async fn drop_connection(&self) {
        *self.session.lock().await = None;
    }

    async fn session(&self) -> Result<Session, Error> {
        let mut slot = self.session.lock().await;
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        let serial = self.opened();
        // On the heap: every call has room for it otherwise.
        let opening = Box::pin(self.connector.open(&self.name, serial));
        let (session, client_id) = opening.await?;
        self.client_id
            .store(client_id.unwrap_or(NO_CLIENT_ID), Ordering::Release);
        self.opened.fetch_add(1, Ordering::Relaxed);
        *slot = Some(session.clone());
        Ok(session)
    }

    /// Forget this connection, unless there is another one already.
    async fn forget(&self, serial: u64) {
        let mut slot = self.session.lock().await;
        if slot.as_ref().is_some_and(|s| s.serial == serial) {
            *slot = None;
        }
    }
}
