//! What the rest of the code uses: a connection to wherever a key is.
//!
//! Behind it, each server has a connection of its own (`node_link`). On a cluster, a command goes to the node
//! that has its first key. A node that refuses because another one has the key (`MOVED`, `ASK`) has not
//! carried the command out: that command, and no other one, is sent to the node that it names. The result of a command
//! that a node did not answer is unknown, and the command is never sent again here.
//!
//! The cluster connection of the client library is not used: it sends whole pipelines again when one of
//! their commands is refused, and again after a lost connection (docs/decisions/0016).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value};

use super::node_link::{How, NO_CLIENT_ID, NodeLink, Tally};
use super::{Connector, Entries, key};
use crate::error::{Error, Redirection};
use crate::reply;
use crate::script::{self, Script};
use crate::topology::Node;
use hostler_core::wire::keys;

/// The most servers to which one link keeps connections. A queue is on one; its destinations are on others.
const NODES_MAX: usize = 64;
/// How often one command follows a node that names another one.
const FOLLOWED_MAX: usize = 5;

/// The commands that publish and copy: a failover must not lose what they write, where that is asked for. A script
/// says so itself.
const DURABLE: [&str; 2] = ["XADD", "LPUSH"];

/// A connection to the servers of a [`Connector`], for one purpose. The first use opens it; after a failure
/// the next use opens it again.
///
/// Concurrent callers share it, in pipelines.
pub struct Link {
    connector: Connector,
    name: Arc<str>,
    /// The slot whose node takes the commands without a key; `None` = any node.
    home: Option<u16>,
    nodes: Mutex<BTreeMap<String, Arc<NodeLink>>>,
    tally: Arc<Tally>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.name).finish()
    }
}

impl Link {
    pub(super) fn new(connector: Connector, name: String) -> Self {
        Self {
            connector,
            name: name.into(),
            home: None,
            nodes: Mutex::default(),
            tally: Arc::default(),
        }
    }

    /// The same link; on a cluster, its commands without a key go to the node that has this one.
    #[must_use]
    pub fn of(self, key: &str) -> Self {
        Self {
            home: Some(keys::slot(key)),
            ..self
        }
    }

    /// Open the connection if it is not open.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn reach(&self) -> Result<(), Error> {
        self.at(None).await?.reach().await?;
        // The server may have said that it is a node of a cluster.
        if self.connector.is_cluster() {
            self.at(None).await?.reach().await?;
        }
        Ok(())
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
        self.ask(command, cmd, wait, is_durable(command)).await
    }

    /// Run a call of a script; Redis' refusal is an error.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        let (command, durably) = (script.name(), script.is_durable());
        self.ask(command, call, Duration::ZERO, durably).await
    }

    async fn ask(
        &self,
        command: &'static str,
        cmd: &Cmd,
        wait: Duration,
        durably: bool,
    ) -> Result<Value, Error> {
        let slot = self.slot_of(cmd);
        let mut link = self.at(slot).await?;
        let mut how = self.how(durably);
        for _ in 0..FOLLOWED_MAX {
            let reply = link.call(command, cmd, wait, how).await?;
            let Some(redirection) = Redirection::of(&reply) else {
                return reply::accepted(command, reply);
            };
            (link, how.asking) = self.follow(&link, &redirection)?;
        }
        let reply = link.call(command, cmd, wait, how).await?;
        reply::accepted(command, reply)
    }

    /// Ask for entries of a stream by a command that does not wait, and keep at most about `limit` bytes of them. `None`:
    /// another node of a cluster has the key, and nothing was carried out.
    ///
    /// No other command may be under way on this link.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn read_entries(
        &self,
        command: &'static str,
        cmd: &Cmd,
        limit: usize,
    ) -> Result<Option<Entries>, Error> {
        let link = self.at(self.slot_of(cmd)).await?;
        let (reply, entries) = link.read_entries(command, cmd, limit).await?;
        if Redirection::of(&reply).is_some() {
            return Ok(None);
        }
        let reply = reply::accepted(command, reply)?;
        match (entries, &reply) {
            (Some(entries), Value::Okay) => Ok(Some(entries)),
            _ => Err(reply::unexpected(command, &reply)),
        }
    }

    /// Ask for the number that a command of one key answers: `XLEN`, `LLEN`.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn count(&self, command: &'static str, key: &str) -> Result<u64, Error> {
        let answer = self.call(command, redis::cmd(command).arg(key)).await?;
        reply::count(command, &answer)
    }

    /// Ask for the type of a key: `stream`, `list`, `none`, ...
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn type_of(&self, key: &str) -> Result<String, Error> {
        const COMMAND: &str = "TYPE";
        reply::text(
            COMMAND,
            self.call(COMMAND, redis::cmd(COMMAND).arg(key)).await?,
        )
    }

    /// Ask several commands in one round trip: on a cluster, one for each node that has some of their keys.
    /// The reply to a refused one is a [`Value::ServerError`].
    ///
    /// # Errors
    /// `Connection` or `Deadline`: the effect of all of them is unknown.
    pub async fn pipeline(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        self.ask_all(command, pipeline, is_durable(command)).await
    }

    /// Run calls of one script in one round trip. The reply to a refused one is a [`Value::ServerError`].
    ///
    /// # Errors
    /// `Connection` or `Deadline`; `Unavailable` with `NOSCRIPT` if Redis forgets faster than we load.
    pub async fn run_all(
        &self,
        script: &'static Script,
        calls: Vec<Cmd>,
    ) -> Result<Vec<Value>, Error> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            pipeline.add_command(call);
        }
        self.ask_all(script.name(), &pipeline, script.is_durable())
            .await
    }

    /// Load these scripts on the server that is at home for this link.
    ///
    /// # Errors
    /// As [`Link::pipeline`], and refusals of Redis.
    pub async fn load(&self, scripts: &[&'static Script]) -> Result<(), Error> {
        let replies = self
            .pipeline(script::LOAD, &script::load_all(scripts))
            .await?;
        replies
            .into_iter()
            .try_for_each(|reply| reply::accepted(script::LOAD, reply).map(drop))
    }

    async fn ask_all(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
        durably: bool,
    ) -> Result<Vec<Value>, Error> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let mut parts = if !self.connector.is_cluster() {
            let link = self.at(None).await?;
            let replies = link.pipeline(command, pipeline, self.how(durably)).await?;
            // It may have turned out to be a node of a cluster just now.
            if !replies.iter().any(|reply| Redirection::of(reply).is_some()) {
                return Ok(replies);
            }
            self.parts(command, pipeline).await?
        } else {
            self.parts(command, pipeline).await?
        };
        let mut replies = vec![Value::Nil; pipeline.len()];
        for _ in 0..=FOLLOWED_MAX {
            let asked = parts.iter().map(async |part| {
                let part_of = (part.places.len() < pipeline.len()).then(|| part.of(pipeline));
                let asked = part_of.as_ref().unwrap_or(pipeline);
                let how = How {
                    asking: part.asking,
                    ..self.how(durably)
                };
                part.link.pipeline(command, asked, how).await
            });
            for (part, answers) in parts.iter().zip(try_join_all(asked).await?) {
                for (&place, answer) in part.places.iter().zip(answers) {
                    replies[place] = answer;
                }
            }
            parts = self.refused(command, pipeline, &parts, &replies)?;
            if parts.is_empty() {
                break;
            }
        }
        Ok(replies)
    }

    /// The commands by the node that has their keys.
    async fn parts(&self, command: &'static str, pipeline: &Pipeline) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::new();
        if is_transaction(pipeline) {
            let link = self.at(slot_of_transaction(command, pipeline)?).await?;
            let places = (0..pipeline.len()).collect();
            let asking = false;
            return Ok(vec![Part {
                link,
                asking,
                places,
            }]);
        }
        for (place, cmd) in pipeline.cmd_iter().enumerate() {
            let link = self.at(key::slot(cmd)).await?;
            Part::add(&mut parts, link, false, place);
        }
        Ok(parts)
    }

    /// What these nodes refused because other ones have the keys, by the node that each refusal names: it
    /// was not carried out. Of a transaction: all of it.
    fn refused(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
        parts: &[Part],
        replies: &[Value],
    ) -> Result<Vec<Part>, Error> {
        let mut next = Vec::new();
        for part in parts {
            for &place in &part.places {
                if let Some(redirection) = Redirection::of(&replies[place]) {
                    let (link, asking) = self.follow(&part.link, &redirection)?;
                    Part::add(&mut next, link, asking, place);
                }
            }
        }
        next.iter_mut().for_each(|part| part.places.sort_unstable());
        if let Some(first) = next.first_mut().filter(|_| is_transaction(pipeline)) {
            if first.asking {
                // `ASKING` does not reach into a transaction.
                let detail = "the slot of the keys is moving to another node";
                return Err(Error::refused(command, "TRYAGAIN", detail));
            }
            first.places = (0..pipeline.len()).collect();
            next.truncate(1);
        }
        Ok(next)
    }

    /// Check that the server takes `write` and answers `read`, within a short deadline. A replica, a
    /// server that cannot save, or one without its replicas refuses writes. A missing right says nothing
    /// about the server, and is not an error here. When the deadline has passed, the next call opens a new
    /// connection.
    ///
    /// # Errors
    /// `Deadline`, and those of the two.
    pub async fn probe(
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
        self.at(None).await?.probe(command, probing).await
    }

    /// The id of the connection, if one was opened and the user may know it.
    pub fn client_id(&self) -> Option<i64> {
        let id = self.tally.client_id.load(Ordering::Acquire);
        (id != NO_CLIENT_ID).then_some(id)
    }

    /// How often a connection was opened.
    pub fn opened(&self) -> u64 {
        self.tally.opened.load(Ordering::Relaxed)
    }

    /// How often Redis did not know a script that was to be run here.
    pub fn scripts_forgotten(&self) -> u64 {
        self.tally.forgotten.load(Ordering::Relaxed)
    }

    /// How often a node of a cluster refused a command because another one has the key.
    pub fn redirections(&self) -> u64 {
        self.tally.redirected.load(Ordering::Relaxed)
    }

    /// Forget the connections: the next call opens a new one.
    pub async fn drop_connection(&self) {
        let links: Vec<Arc<NodeLink>> = self.nodes.lock().values().map(Arc::clone).collect();
        for link in links {
            link.drop_connection().await;
        }
    }

    /// Whether the servers are a cluster, as far as they said so.
    pub fn is_cluster(&self) -> bool {
        self.connector.is_cluster()
    }

    fn slot_of(&self, cmd: &Cmd) -> Option<u16> {
        match self.connector.is_cluster() {
            true => key::slot(cmd),
            false => None,
        }
    }

    /// The connection to the server of a slot; `None` = that of this link's home.
    async fn at(&self, slot: Option<u16>) -> Result<Arc<NodeLink>, Error> {
        let node = self.connector.node_of(slot.or(self.home)).await?;
        Ok(self.link_to(node))
    }

    fn link_to(&self, node: Arc<Node>) -> Arc<NodeLink> {
        let mut nodes = self.nodes.lock();
        if let Some(link) = nodes.get(node.text())
            && Arc::ptr_eq(&link.node, &node)
        {
            return Arc::clone(link);
        }
        if nodes.len() >= NODES_MAX {
            // Most of them are gone: those in use are opened again.
            nodes.clear();
        }
        let text = node.text().to_owned();
        let (name, tally) = (Arc::clone(&self.name), Arc::clone(&self.tally));
        let link = Arc::new(NodeLink::new(&self.connector, node, name, tally));
        nodes.insert(text, Arc::clone(&link));
        link
    }

    /// The connection to the node that another one names.
    fn follow(
        &self,
        from: &NodeLink,
        redirection: &Redirection,
    ) -> Result<(Arc<NodeLink>, bool), Error> {
        self.tally.redirected.fetch_add(1, Ordering::Relaxed);
        let node = self.connector.redirected(&from.node, redirection)?;
        Ok((self.link_to(node), redirection.is_ask))
    }

    fn how(&self, durably: bool) -> How {
        How {
            asking: false,
            durably: self.connector.is_durable && durably,
        }
    }
}

fn is_durable(command: &str) -> bool {
    DURABLE.contains(&command)
}

fn is_transaction(pipeline: &Pipeline) -> bool {
    let first = pipeline.cmd_iter().next();
    first.is_some_and(|cmd| cmd.args_iter().next() == Some(redis::Arg::Simple(b"MULTI")))
}

/// The slot of all commands of a transaction.
fn slot_of_transaction(command: &'static str, pipeline: &Pipeline) -> Result<Option<u16>, Error> {
    let mut slots = pipeline.cmd_iter().filter_map(key::slot);
    let first = slots.next();
    match slots.all(|slot| Some(slot) == first) {
        true => Ok(first),
        false => Err(Error::refused(
            command,
            "CROSSSLOT",
            "the keys of the transaction are in several slots",
        )),
    }
}

/// Some commands of a pipeline, and the node that is asked them.
struct Part {
    link: Arc<NodeLink>,
    asking: bool,
    places: Vec<usize>,
}

impl Part {
    fn add(parts: &mut Vec<Self>, link: Arc<NodeLink>, asking: bool, place: usize) {
        let same = |part: &&mut Self| Arc::ptr_eq(&part.link, &link) && part.asking == asking;
        match parts.iter_mut().find(same) {
            Some(part) => part.places.push(place),
            None => parts.push(Self {
                link,
                asking,
                places: vec![place],
            }),
        }
    }

    /// Its commands, in order.
    fn of(&self, pipeline: &Pipeline) -> Pipeline {
        let mut part = Pipeline::with_capacity(self.places.len());
        let mut wanted = self.places.iter().peekable();
        for (place, cmd) in pipeline.cmd_iter().enumerate() {
            if wanted.next_if_eq(&&place).is_some() {
                part.add_command(cmd.clone());
            }
        }
        part
    }
}
