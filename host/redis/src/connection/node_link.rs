//! A connection to one server. It is opened when it is first used, and again after a failure.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{
    BUFFER_MAX, Connector, Entries, PROBE_DEADLINE, REPLICA_DEADLINE, Session, WAIT, broken,
};
use crate::error::Error;
use crate::reply;
use crate::script;
use crate::topology::Node;

/// What the connections of a link have had in common.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// How often a connection was opened.
    pub(super) opened: AtomicU64,
    /// How often a server had forgotten a script.
    pub(super) forgotten: AtomicU64,
    /// How often a node refused a command because another one has the key.
    pub(super) redirected: AtomicU64,
    /// The id of the last connection that was opened.
    pub(super) client_id: AtomicI64,
}

/// Redis counts clients from 1.
pub(super) const NO_CLIENT_ID: i64 = 0;

/// A connection to one server. Concurrent callers share it, in pipelines.
pub(super) struct NodeLink {
    connector: Connector,
    pub(super) node: Arc<Node>,
    name: Arc<str>,
    session: Mutex<Option<Session>>,
    tally: Arc<Tally>,
}

/// How commands are sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct How {
    /// They follow an `ASK`: the node takes them for a slot that is on its way to it, each behind an `ASKING` of
    /// its own.
    pub(super) asking: bool,
    /// Their writes are confirmed by a replica.
    pub(super) durably: bool,
}

impl NodeLink {
    pub(super) fn new(
        connector: &Connector,
        node: Arc<Node>,
        name: Arc<str>,
        tally: Arc<Tally>,
    ) -> Self {
        Self {
            connector: connector.clone(),
            node,
            name,
            session: Mutex::new(None),
            tally,
        }
    }

    /// Ask one command that may block for `wait`. A refusal is a [`Value::ServerError`].
    pub(super) async fn call(
        &self,
        command: &'static str,
        cmd: &Cmd,
        wait: Duration,
        how: How,
    ) -> Result<Value, Error> {
        if how != How::default() {
            let mut pipeline = Pipeline::new();
            pipeline.add_command(cmd.clone());
            let mut replies = self.pipeline(command, &pipeline, how).await?;
            return Ok(replies.pop().unwrap_or(Value::Nil));
        }
        let deadline = wait + self.connector.deadline;
        let asked = async |mut session: Session| {
            let reply = session.connection.send_packed_command(cmd).await;
            Ok((reply.map_err(|e| broken(&self.node, &e))?, session.serial))
        };
        let (mut reply, serial) = self.ask(command, deadline, asked).await?;
        if is_unknown_script(&reply) {
            self.load_scripts(std::iter::once(cmd)).await?;
            (reply, _) = self.ask(command, deadline, asked).await?;
        }
        self.look_at(std::slice::from_ref(&reply), command, serial)
            .await;
        Ok(reply)
    }

    /// See [`super::Link::read_entries`]. A refusal is a [`Value::ServerError`], and has no entries.
    pub(super) async fn read_entries(
        &self,
        command: &'static str,
        cmd: &Cmd,
        limit: usize,
    ) -> Result<(Value, Option<Entries>), Error> {
        let asked = async |mut session: Session| {
            let intake = Arc::clone(&session.intake);
            let request = intake.begin(limit);
            let reply = session.connection.send_packed_command(cmd).await;
            let reply = reply.map_err(|e| broken(&self.node, &e))?;
            Ok((reply, request.end(), session.serial))
        };
        let (reply, entries, serial) = self.ask(command, self.connector.deadline, asked).await?;
        self.look_at(std::slice::from_ref(&reply), command, serial)
            .await;
        Ok((reply, entries))
    }

    /// Ask several commands in one round trip. The reply to a refused one is a [`Value::ServerError`].
    pub(super) async fn pipeline(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
        how: How,
    ) -> Result<Vec<Value>, Error> {
        let (mut replies, serial) = self.send(command, pipeline, how).await?;
        if replies.iter().any(is_unknown_script) {
            let (mut again, mut places) = (Pipeline::new(), Vec::new());
            for (place, (call, reply)) in pipeline.cmd_iter().zip(&replies).enumerate() {
                if is_unknown_script(reply) {
                    again.add_command(call.clone());
                    places.push(place);
                }
            }
            self.load_scripts(again.cmd_iter()).await?;
            let (answers, _) = self.send(command, &again, how).await?;
            for (place, answer) in places.into_iter().zip(answers) {
                replies[place] = answer;
            }
        }
        self.look_at(&replies, command, serial).await;
        Ok(replies)
    }

    async fn send(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
        how: How,
    ) -> Result<(Vec<Value>, u64), Error> {
        let mut changed = None;
        if how != How::default() {
            let mut longer = Pipeline::with_capacity(2 * pipeline.len() + 1);
            for call in pipeline.cmd_iter() {
                if how.asking {
                    longer.cmd("ASKING");
                }
                longer.add_command(call.clone());
            }
            if how.durably {
                // One replica: more is a matter of `min-replicas-to-write`.
                let wait_ms = REPLICA_DEADLINE.as_millis() as u64;
                longer.cmd(WAIT).arg(1).arg(wait_ms);
            }
            changed = Some(longer);
        }
        let sent = changed.as_ref().unwrap_or(pipeline);
        let count = sent.len();
        let asked = async |mut session: Session| {
            let replies = session.connection.send_packed_commands(sent, 0, count);
            let mut values = replies.await.map_err(|e| broken(&self.node, &e))?;
            if values.len() != count {
                return Err(Error::Connection {
                    target: self.node.text().to_owned(),
                    detail: format!("{} replies to {count} commands", values.len()),
                });
            }
            let waited = if how.durably { values.pop() } else { None };
            if how.asking {
                values = values.into_iter().skip(1).step_by(2).collect();
            }
            if let Some(waited) = waited {
                self.check_confirmed(waited, &values)?;
            }
            Ok((values, session.serial))
        };
        self.ask(command, self.connector.deadline, asked).await
    }

    /// Check the reply to `WAIT` behind commands with these replies.
    fn check_confirmed(&self, waited: Value, replies: &[Value]) -> Result<(), Error> {
        if let Value::ServerError(error) = &waited
            && error
                .details()
                .is_some_and(|text| text.starts_with("WAIT cannot"))
        {
            // The server became a replica. It refused the commands as well, and said who serves now.
            if replies
                .iter()
                .all(|reply| matches!(reply, Value::ServerError(_)))
            {
                return Ok(());
            }
            return Err(Error::Connection {
                target: self.node.text().to_owned(),
                detail: "it became a replica before another server confirmed a write".to_owned(),
            });
        }
        let confirmed = reply::accepted(WAIT, waited)?;
        match reply::count(WAIT, &confirmed)? {
            0 => Err(self.connector.late(&self.node, WAIT, REPLICA_DEADLINE)),
            _ => Ok(()),
        }
    }

    /// Load the scripts of these calls: the server does not know them.
    async fn load_scripts<'a>(&self, calls: impl Iterator<Item = &'a Cmd>) -> Result<(), Error> {
        self.tally.forgotten.fetch_add(1, Ordering::Relaxed);
        let load = script::load_called(calls);
        let (replies, _) = self.send(script::LOAD, &load, How::default()).await?;
        for reply in replies {
            reply::accepted(script::LOAD, reply)?;
        }
        Ok(())
    }

    /// What refusals say of the server: whether it is no primary, and whether a new connection may help.
    async fn look_at(&self, replies: &[Value], command: &'static str, serial: u64) {
        let mut wants_new = false;
        for reply in replies {
            let Value::ServerError(error) = reply else {
                continue;
            };
            let refusal =
                Error::refused(command, error.code(), error.details().unwrap_or_default());
            // A former primary keeps refusing on the old connection while the name already leads to the new
            // primary; a changed password is read again.
            wants_new |= refusal.wants_new_connection();
            if refusal.says_who_serves_changed() {
                self.node.suspect();
            }
        }
        if wants_new {
            self.forget(serial).await;
        }
    }

    /// Ask on an open connection. The deadline covers the wait for another caller that opens it, and the
    /// opening. Then it counts from the last byte that moved: so a connection that hangs delays no caller
    /// longer than its own deadline, and one that is slow is not given up. A server that another one has
    /// replaced is not waited for.
    async fn ask<T>(
        &self,
        command: &'static str,
        deadline: Duration,
        asked: impl AsyncFnOnce(Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let asking = async {
            let late = |command| Err(self.connector.late(&self.node, command, deadline));
            let session = match timeout(deadline, self.session()).await {
                Ok(session) => session?,
                Err(_) => return late("CONNECT"),
            };
            let (serial, progress) = (session.serial, Arc::clone(&session.progress));
            let before = progress.received();
            let reply = progress.wait_for(deadline, asked(session)).await;
            let reply = reply.unwrap_or_else(|| late(command));
            let is_bloated = progress.received() - before > BUFFER_MAX;
            if is_bloated || reply.as_ref().is_err_and(Error::wants_new_connection) {
                self.forget(serial).await;
            }
            reply
        };
        let reply = tokio::select! {
            biased;
            reply = asking => reply,
            () = self.node.left() => Err(Error::Connection {
                target: self.node.text().to_owned(),
                detail: "another server has taken its place".to_owned(),
            }),
        };
        match &reply {
            Ok(_) => self.node.trust(),
            Err(error) if error.says_who_serves_changed() => self.node.suspect(),
            Err(_) => {}
        }
        reply
    }

    /// See [`super::Link::probe`].
    pub(super) async fn probe(
        &self,
        command: &'static str,
        probing: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
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
        self.node.suspect();
        // If another task holds the lock, it is opening a new connection.
        if let Ok(mut slot) = self.session.try_lock() {
            *slot = None;
        }
        Err(self.connector.late(&self.node, command, PROBE_DEADLINE))
    }

    /// Open the connection if it is not open.
    pub(super) async fn reach(&self) -> Result<(), Error> {
        let reached = self.ask("CONNECT", self.connector.deadline, async |_| Ok(()));
        reached.await
    }

    async fn session(&self) -> Result<Session, Error> {
        let mut slot = self.session.lock().await;
        if let Some(session) = &*slot {
            return Ok(session.clone());
        }
        let serial = self.tally.opened.load(Ordering::Relaxed);
        // On the heap: every call has room for it otherwise.
        let opening = Box::pin(self.connector.open(&self.node, &self.name, serial));
        let (session, greeting) = opening.await?;
        let id = greeting.client_id.unwrap_or(NO_CLIENT_ID);
        self.tally.client_id.store(id, Ordering::Release);
        self.tally.opened.fetch_add(1, Ordering::Relaxed);
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

    /// Forget the connection: the next call opens a new one.
    pub(super) async fn drop_connection(&self) {
        *self.session.lock().await = None;
    }
}

fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
