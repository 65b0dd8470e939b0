//! Which server serves: the primary of a slot on a cluster, or the one that Sentinels name.
//!
//! Servers are asked when one is needed and none is known, or when the one that is known did not answer or
//! said that it is no primary. Who asks first asks for all: the others wait for the answer. A host also
//! listens to what Sentinels announce, so that it leaves a primary at once that they have replaced.

use std::time::Duration;

use redis::{ConnectionAddr, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Connector, DISCOVERY_DEADLINE, no_timeouts};
use crate::error::{Error, Redirection, bounded};
use crate::reply;
use crate::target::Servers;
use crate::topology::{Form, Node, SLOTS, Shard};

/// How long at least between two questions, so that a cluster in trouble is not asked all the time.
const PAUSE: Duration = Duration::from_millis(100);
/// How many servers are asked at the same time.
const ASKED_TOGETHER: usize = 3;
/// The pause before the next try to listen to a Sentinel.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
/// How often a Sentinel that announces nothing is asked whether it is there.
const LISTEN_PROBE: Duration = Duration::from_secs(5);

/// The nodes of a cluster, and the slots of each.
#[derive(Debug)]
pub struct Owners {
    nodes: Vec<String>,
    slots: Vec<usize>,
}

impl Owners {
    /// The node of a slot: host and port.
    pub fn of(&self, slot: u16) -> &str {
        let place = self.slots.get(usize::from(slot));
        place.map_or("", |place| &self.nodes[*place])
    }

    /// The nodes that have slots.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }
}

/// Whose turn it is to ask, and when the last answer came.
pub(super) type Turn = Mutex<Option<Instant>>;

impl Connector {
    pub(super) fn is_cluster(&self) -> bool {
        self.topology.is_cluster()
    }

    /// The server of a slot; `None` = any that serves.
    ///
    /// # Errors
    /// `Connection` or `Unavailable`: no server says who serves.
    pub(super) async fn node_of(&self, slot: Option<u16>) -> Result<std::sync::Arc<Node>, Error> {
        if let Some(node) = self.topology.serving(slot) {
            return Ok(node);
        }
        let mut last = self.discovery.lock().await;
        if let Some(node) = self.topology.serving(slot) {
            return Ok(node);
        }
        if let Some(last) = *last {
            sleep_until(last + PAUSE).await;
        }
        // On the heap: it is rare, and every call would have room for it.
        let found = Box::pin(self.discover()).await;
        *last = Some(Instant::now());
        match (self.topology.last_known(slot), found) {
            // It may be back: whether it is, the next command says.
            (Some(node), _) => Ok(node),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(Error::refused(
                "CLUSTER SHARDS",
                "CLUSTERDOWN",
                "no node of the cluster has the slot of the key",
            )),
        }
    }

    /// Which node has which slots. A server that is not a cluster has all of them.
    ///
    /// # Errors
    /// As [`super::Link::call`].
    pub async fn owners(&self) -> Result<Owners, Error> {
        self.link("owners").reach().await?;
        let mut owners = Owners {
            nodes: Vec::new(),
            slots: Vec::new(),
        };
        for slot in 0..SLOTS {
            let node = self.node_of(Some(slot)).await?;
            let known = owners.nodes.iter().position(|name| name == node.text());
            let place = known.unwrap_or_else(|| {
                owners.nodes.push(node.text().to_owned());
                owners.nodes.len() - 1
            });
            owners.slots.push(place);
        }
        Ok(owners)
    }

    /// The node that another one names, which has the slot from now on or takes it over just now.
    pub(super) fn redirected(
        &self,
        from: &Node,
        redirection: &Redirection,
    ) -> Result<std::sync::Arc<Node>, Error> {
        let unknown = || Error::Reply {
            command: "CLUSTER",
            detail: format!("no address of a node: {}", bounded(&redirection.node)),
        };
        let (host, port) = redirection.node.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let address = beside(from.address(), host, port).ok_or_else(unknown)?;
        self.topology.becomes_cluster();
        Ok(match redirection.is_ask {
            true => self.topology.beside(address),
            false => self.topology.learn(redirection.slot, address),
        })
    }

    /// Ask who serves.
    async fn discover(&self) -> Result<(), Error> {
        let all = self.topology.whom_to_ask();
        let mut failure = None;
        for some in all.chunks(ASKED_TOGETHER) {
            let asked = some
                .iter()
                .map(|address| Box::pin(self.ask_who_serves(address.clone())));
            match futures_util::future::select_ok(asked).await {
                Ok(_) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Connection {
            target: self.target.address(),
            detail: "there is no server to ask".to_owned(),
        }))
    }

    async fn ask_who_serves(&self, address: ConnectionAddr) -> Result<(), Error> {
        let node = Node::new(address);
        let asking = async {
            match &self.target.servers {
                Servers::Sentinel { master, .. } => self.ask_sentinel(&node, master).await,
                _ => self.ask_node(&node).await,
            }
        };
        match timeout(DISCOVERY_DEADLINE, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(self.late(&node, "CLUSTER SHARDS", DISCOVERY_DEADLINE)),
        }
    }

    /// Ask a node of a cluster who has which slots.
    async fn ask_node(&self, node: &Node) -> Result<(), Error> {
        const COMMAND: &str = "CLUSTER SHARDS";
        let name = format!("{}:discovery", self.name);
        let opening = self.open_and_log_in(node, &name, 0, no_timeouts(), false);
        let (mut session, greeting) = opening.await?;
        if !greeting.is_cluster && self.topology.form() == Form::Cluster {
            return Err(Error::Connection {
                target: node.text().to_owned(),
                detail: "this server is not a node of a cluster: write redis://host:port"
                    .to_owned(),
            });
        }
        let mut ask = cmd("CLUSTER");
        let sent = session.connection.send_packed_command(ask.arg("SHARDS"));
        let answer = sent.await.map_err(|error| super::broken(node, &error))?;
        let answer = match reply::accepted(COMMAND, answer) {
            // Without the right, this node is asked, and each of its refusals names the node that has a key.
            Err(error) if error.is_missing_right() => {
                self.topology.assume(node.address().clone());
                return Ok(());
            }
            answer => answer?,
        };
        let (shards, nodes) = parse_shards(answer, node.address())?;
        if shards.is_empty() {
            return Err(Error::refused(
                COMMAND,
                "CLUSTERDOWN",
                "this node knows no primary: the cluster is not formed yet",
            ));
        }
        self.topology.set_shards(&shards, nodes);
        Ok(())
    }

    /// Ask a Sentinel for the primary, and for the other Sentinels.
    async fn ask_sentinel(&self, node: &Node, master: &str) -> Result<(), Error> {
        const COMMAND: &str = "SENTINEL GET-MASTER-ADDR-BY-NAME";
        let sentinels = self.to_sentinels();
        let name = format!("{}:discovery", self.name);
        let opening = sentinels.open_and_log_in(node, &name, 0, no_timeouts(), false);
        let (mut session, _) = opening.await?;
        let mut ask = cmd("SENTINEL");
        let sent = session
            .connection
            .send_packed_command(ask.arg("GET-MASTER-ADDR-BY-NAME").arg(master));
        let answer = sent.await.map_err(|error| super::broken(node, &error))?;
        let answer = reply::accepted(COMMAND, answer)?;
        if answer == Value::Nil {
            return Err(Error::Configuration {
                command: COMMAND,
                code: "UNKNOWN".to_owned(),
                detail: format!(
                    "the Sentinel at {} watches no primary `{}`",
                    node.text(),
                    bounded(master)
                ),
            });
        }
        let [host, port] = reply::tuple(COMMAND, answer)?;
        let host = reply::text(COMMAND, host)?;
        let port = reply::count(COMMAND, &port)?;
        let port = u16::try_from(port).map_err(|_| reply::invalid(COMMAND, "no port"))?;
        let address = beside(node.address(), &host, port);
        let address = address.ok_or_else(|| reply::invalid(COMMAND, "no address"))?;
        let mut others = cmd("SENTINEL");
        let sent = session
            .connection
            .send_packed_command(others.arg("SENTINELS").arg(master));
        // Sentinels may come and go: those that this one knows are asked, too.
        if let Ok(Value::Array(others)) = sent.await {
            let others = others.into_iter().filter_map(|other| {
                let facts = facts(other)?;
                let port = facts.get("port")?.parse().ok()?;
                beside(node.address(), facts.get("ip")?, port)
            });
            self.topology.set_sentinels(others.collect());
        }
        self.has_primary(address);
        Ok(())
    }

    fn has_primary(&self, address: ConnectionAddr) {
        let known = self.topology.primaries() > 0;
        if self.topology.set_primary(address) && known {
            let primary = self.topology.last_known(None);
            let primary = primary.as_ref().map_or("", |node| node.text());
            tracing::warn!(primary, "the Sentinels name another primary");
        }
    }

    /// The same connector with the login of the Sentinels.
    fn to_sentinels(&self) -> Self {
        Self {
            target: std::sync::Arc::new(self.target.of_sentinels()),
            ..self.clone()
        }
    }

    /// Listen to what the Sentinels announce, for ever: a primary that they have replaced is left at once.
    /// Returns at once where there are no Sentinels.
    pub async fn watch(&self) {
        const CHANNEL: &str = "+switch-master";
        let Servers::Sentinel { master, .. } = &self.target.servers else {
            return;
        };
        let sentinels = self.to_sentinels();
        loop {
            for address in self.topology.whom_to_ask() {
                let node = Node::new(address);
                let gone = std::sync::Arc::new(tokio::sync::Notify::new());
                let (ended, connector) = (std::sync::Arc::clone(&gone), self.clone());
                let (name, from) = (master.clone(), node.address().clone());
                let announced = move |push: redis::PushInfo| {
                    if push.kind == redis::PushKind::Disconnection {
                        ended.notify_one();
                    }
                    // `mymaster 10.0.0.1 6379 10.0.0.2 6379`: the old address, and the new one.
                    let Some(Value::BulkString(text)) = push.data.get(1) else {
                        return;
                    };
                    let text = String::from_utf8_lossy(text);
                    let words: Vec<&str> = text.split(' ').collect();
                    if let [of, _, _, host, port] = words[..]
                        && of == name
                        && let Ok(port) = port.parse()
                        && let Some(address) = beside(&from, host, port)
                    {
                        connector.has_primary(address);
                    }
                };
                let subscribed = sentinels.subscribe_at(&node, "SUBSCRIBE", CHANNEL, announced);
                let mut subscribed = match subscribed.await {
                    Ok(subscribed) => subscribed,
                    Err(error) => {
                        tracing::debug!(%error, "cannot listen to a Sentinel");
                        continue;
                    }
                };
                // A change that was announced before this is asked for.
                if let Err(error) = self.ask_who_serves(node.address().clone()).await {
                    tracing::debug!(%error, "cannot ask a Sentinel");
                }
                loop {
                    tokio::select! {
                        () = gone.notified() => break,
                        () = sleep(LISTEN_PROBE) => {}
                    }
                    if subscribed.answers().await.is_err() {
                        break;
                    }
                }
            }
            sleep(LISTEN_PAUSE).await;
        }
    }
}

/// An address that a server names: with TLS if that server has it. A server that does not know its own name
/// leaves it out (or writes `?`): then it is that of the server that was asked.
fn beside(asked: &ConnectionAddr, host: &str, port: u16) -> Option<ConnectionAddr> {
    let mut address = match asked {
        ConnectionAddr::Unix(_) if matches!(host, "" | "?") => return Some(asked.clone()),
        ConnectionAddr::Unix(_) => ConnectionAddr::Tcp(String::new(), port),
        other => other.clone(),
    };
    match &mut address {
        ConnectionAddr::Tcp(own, own_port)
        | ConnectionAddr::TcpTls {
            host: own,
            port: own_port,
            ..
        } => {
            if !matches!(host, "" | "?") {
                host.clone_into(own);
            }
            *own_port = port;
        }
        _ => return None,
    }
    Some(address)
}

/// Names and values of a map, or of an array of both in a row. Values that are no text are left out.
fn facts(value: Value) -> Option<std::collections::BTreeMap<String, String>> {
    const COMMAND: &str = "CLUSTER SHARDS";
    let pairs = pairs(value)?.into_iter();
    let texts = pairs.filter_map(|(name, value)| Some((name, reply::text(COMMAND, value).ok()?)));
    Some(texts.collect())
}

fn pairs(value: Value) -> Option<Vec<(String, Value)>> {
    const COMMAND: &str = "CLUSTER SHARDS";
    let named = |(name, value)| Some((reply::text(COMMAND, name).ok()?, value));
    let pairs = reply::pairs(COMMAND, value).ok()?.into_iter();
    pairs.map(named).collect()
}

/// The reply of `CLUSTER SHARDS`: the shards that have a primary, and all nodes.
fn parse_shards(
    reply: Value,
    asked: &ConnectionAddr,
) -> Result<(Vec<Shard>, Vec<ConnectionAddr>), Error> {
    const COMMAND: &str = "CLUSTER SHARDS";
    let wrong = || reply::invalid(COMMAND, "a shard of another shape");
    let is_tls = matches!(asked, ConnectionAddr::TcpTls { .. });
    let (mut shards, mut all) = (Vec::new(), Vec::new());
    for shard in reply::array(COMMAND, reply)? {
        let (mut slots, mut primary) = (Vec::new(), None);
        for (name, value) in pairs(shard).ok_or_else(wrong)? {
            match &*name {
                "slots" => {
                    let numbers = reply::array(COMMAND, value)?;
                    for range in numbers.chunks_exact(2) {
                        let number = |value| {
                            let number = reply::count(COMMAND, value)?;
                            u16::try_from(number).map_err(|_| wrong())
                        };
                        slots.push((number(&range[0])?, number(&range[1])?));
                    }
                }
                "nodes" => {
                    for node in reply::array(COMMAND, value)? {
                        let facts = facts(node).ok_or_else(wrong)?;
                        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
                        let port = if is_tls { "tls-port" } else { "port" };
                        let Ok(port) = fact(port).parse() else {
                            continue;
                        };
                        let host = match fact("endpoint") {
                            "" | "?" => fact("ip"),
                            host => host,
                        };
                        let Some(address) = beside(asked, host, port) else {
                            continue;
                        };
                        // After a failover the old primary may be listed beside the new one.
                        let serves = fact("role") == "master" && fact("health") != "fail";
                        if serves || (primary.is_none() && fact("role") == "master") {
                            primary = Some(address.clone());
                        }
                        all.push(address);
                    }
                }
                _ => {}
            }
        }
        if let Some(primary) = primary.filter(|_| !slots.is_empty()) {
            shards.push(Shard { slots, primary });
        }
    }
    Ok((shards, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn row(parts: &[(&str, &str)]) -> Value {
        let parts = parts.iter().flat_map(|(name, value)| {
            let value = value.parse().map_or_else(|_| text(value), Value::Int);
            [text(name), value]
        });
        Value::Array(parts.collect())
    }

    #[test]
    fn shards_lead_to_the_primaries_that_are_up() {
        let node = |port, role, health| {
            row(&[
                ("id", "x"),
                ("port", port),
                ("tls-port", "9999"),
                ("ip", "10.0.0.1"),
                ("endpoint", "?"),
                ("role", role),
                ("health", health),
            ])
        };
        let nodes = Value::Array(vec![
            node("1", "master", "fail"),
            node("2", "master", "online"),
            node("3", "replica", "online"),
        ]);
        let slots = Value::Array([0, 5, 7, 7].map(Value::Int).to_vec());
        let empty = Value::Array(vec![
            text("slots"),
            Value::Array(Vec::new()),
            text("nodes"),
            Value::Array(vec![node("4", "master", "online")]),
        ]);
        let shard = Value::Array(vec![text("slots"), slots, text("nodes"), nodes]);
        let asked = ConnectionAddr::Tcp("h".to_owned(), 1);
        let (shards, all) = parse_shards(Value::Array(vec![shard, empty]), &asked).unwrap();
        let at = |port| ConnectionAddr::Tcp("10.0.0.1".to_owned(), port);
        let expected = Shard {
            slots: vec![(0, 5), (7, 7)],
            primary: at(2),
        };
        assert_eq!(shards, [expected]);
        assert_eq!(all, [at(1), at(2), at(3), at(4)]);
        assert!(parse_shards(Value::Int(1), &asked).is_err());
    }

    #[test]
    fn a_server_that_leaves_its_name_out_is_where_it_was_asked() {
        let tcp = ConnectionAddr::Tcp("h".to_owned(), 1);
        for host in ["", "?"] {
            let address = beside(&tcp, host, 7);
            assert_eq!(address, Some(ConnectionAddr::Tcp("h".to_owned(), 7)));
        }
        let socket = ConnectionAddr::Unix("/s".into());
        assert_eq!(beside(&socket, "?", 7), Some(socket.clone()));
        let named = beside(&socket, "n", 7);
        assert_eq!(named, Some(ConnectionAddr::Tcp("n".to_owned(), 7)));
    }
}
