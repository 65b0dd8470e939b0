//! Which server serves what, as far as it is known: one server, the primaries of a cluster by slots, or
//! the primary that Sentinels name. This is state only; `connection::discovery` asks the servers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::ConnectionAddr;
use tokio::sync::watch;

use crate::target::{Servers, shown};

/// How many slots a cluster has (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
pub(super) const SLOTS: u16 = 16384;
/// A slot whose primary is not known.
const UNKNOWN: u16 = u16::MAX;
/// The most primaries, and the most Sentinels, that are kept in mind.
const NODES_MAX: usize = 1000;

/// A server that serves, or one that was named as such.
pub(crate) struct Node {
    address: ConnectionAddr,
    text: String,
    /// It did not answer, or said that it is no primary: ask who serves before it is used again.
    is_suspect: AtomicBool,
    /// It serves no more: who waits for its answer stops.
    left: watch::Sender<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    pub(super) fn new(address: ConnectionAddr) -> Arc<Self> {
        Arc::new(Self {
            text: shown(&address),
            address,
            is_suspect: AtomicBool::new(false),
            left: watch::Sender::new(false),
        })
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        &self.address
    }

    /// Host and port, or the socket's path.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Ask who serves before this one is used again.
    pub(super) fn suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    /// It answers, and serves.
    pub(super) fn trust(&self) {
        // Read first: every answer comes here, on several threads.
        if self.is_suspect.load(Ordering::Relaxed) {
            self.is_suspect.store(false, Ordering::Relaxed);
        }
    }

    /// Ends once another server has taken its place.
    pub(super) async fn left(&self) {
        // The sender lives as long as this node.
        if self.left.subscribe().wait_for(|left| *left).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A part of a cluster: some slots and their primary.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Shard {
    /// First and last slot of each range.
    pub(super) slots: Vec<(u16, u16)>,
    pub(super) primary: ConnectionAddr,
}

/// How the servers are found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Form {
    #[default]
    One,
    Cluster,
    Sentinel,
}

/// What is known of the servers. Shared by all connections of a process to the same servers.
#[derive(Debug)]
pub(super) struct Topology(Mutex<State>);

#[derive(Default)]
struct State {
    form: Form,
    /// Whom to ask: nodes of the cluster, or Sentinels. Those of the configuration come first, and stay.
    seeds: Vec<ConnectionAddr>,
    configured: usize,
    primaries: Vec<Arc<Node>>,
    /// The place of the primary of each slot; empty if there are no slots.
    slots: Vec<u16>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("form", &self.form)
            .field("primaries", &self.primaries)
            .finish_non_exhaustive()
    }
}

impl Topology {
    pub(super) fn new(servers: &Servers) -> Self {
        let mut state = State::default();
        match servers {
            Servers::One(address) => {
                state.seeds.push(address.clone());
                state.primaries.push(Node::new(address.clone()));
            }
            Servers::Cluster(nodes) => {
                state.form = Form::Cluster;
                state.slots = vec![UNKNOWN; usize::from(SLOTS)];
                state.seeds.clone_from(nodes);
            }
            Servers::Sentinel { sentinels, .. } => {
                state.form = Form::Sentinel;
                state.seeds.clone_from(sentinels);
            }
        }
        state.configured = state.seeds.len();
        Self(Mutex::new(state))
    }

    pub(super) fn form(&self) -> Form {
        self.0.lock().form
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.form() == Form::Cluster
    }

    /// Whom to ask who serves: primaries that are not suspect, then the others.
    pub(super) fn whom_to_ask(&self) -> Vec<ConnectionAddr> {
        let state = self.0.lock();
        let mut all: Vec<ConnectionAddr> = Vec::new();
        if state.form == Form::Cluster {
            let primaries = state.primaries.iter();
            let trusted = primaries.filter(|node| !node.is_suspect.load(Ordering::Relaxed));
            all.extend(trusted.map(|node| node.address.clone()));
            fastrand::shuffle(&mut all);
        }
        for seed in &state.seeds {
            if !all.contains(seed) {
                all.push(seed.clone());
            }
        }
        all
    }

    /// The server of a slot, or any; `None` = ask first.
    pub(super) fn serving(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        let state = self.0.lock();
        let node = state.of(slot)?;
        let may_move = state.form != Form::One;
        (!may_move || !node.is_suspect.load(Ordering::Relaxed)).then(|| Arc::clone(node))
    }

    /// The same, even if it is suspect: no better one is known.
    pub(super) fn last_known(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        self.0.lock().of(slot).cloned()
    }

    /// The server of the configuration is a node of a cluster. Returns whether this is new.
    pub(super) fn becomes_cluster(&self) -> bool {
        let mut state = self.0.lock();
        let is_new = state.form == Form::One;
        if is_new {
            state.form = Form::Cluster;
            state.slots = vec![UNKNOWN; usize::from(SLOTS)];
        }
        is_new
    }

    /// The primaries of a cluster, and all its nodes.
    pub(super) fn set_shards(&self, shards: &[Shard], nodes: Vec<ConnectionAddr>) {
        let mut state = self.0.lock();
        let before = std::mem::take(&mut state.primaries);
        let mut slots = vec![UNKNOWN; usize::from(SLOTS)];
        for shard in shards.iter().take(NODES_MAX) {
            let known = before.iter().find(|node| node.address == shard.primary);
            let node = known.map_or_else(|| Node::new(shard.primary.clone()), Arc::clone);
            let place = u16::try_from(state.primaries.len()).unwrap_or(UNKNOWN);
            state.primaries.push(node);
            for &(first, last) in &shard.slots {
                for slot in first..=last {
                    if let Some(of) = slots.get_mut(usize::from(slot)) {
                        *of = place;
                    }
                }
            }
        }
        state.slots = slots;
        state.gone(&before);
        state.set_seeds(nodes);
    }

    /// Ask this node about every slot of which no primary is known, or one that did not answer.
    pub(super) fn assume(&self, address: ConnectionAddr) {
        let mut state = self.0.lock();
        let place = state.place_of(address);
        let State {
            primaries, slots, ..
        } = &mut *state;
        let is_unknown = |place: u16| {
            let node = primaries.get(usize::from(place));
            node.is_none_or(|node| node.is_suspect.load(Ordering::Relaxed))
        };
        for slot in slots.iter_mut().filter(|slot| is_unknown(**slot)) {
            *slot = u16::try_from(place).unwrap_or(UNKNOWN);
        }
    }

    /// A node of the cluster says that this one has the slot.
    pub(super) fn learn(&self, slot: u16, address: ConnectionAddr) -> Arc<Node> {
        let mut state = self.0.lock();
        let place = state.place_of(address);
        let node = Arc::clone(&state.primaries[place]);
        if state.slots.is_empty() {
            state.slots = vec![UNKNOWN; usize::from(SLOTS)];
        }
        if let (Some(of), Ok(place)) = (state.slots.get_mut(usize::from(slot)), place.try_into()) {
            *of = place;
        }
        node
    }

    /// A node of the cluster that takes over a slot, but does not have it yet.
    pub(super) fn beside(&self, address: ConnectionAddr) -> Arc<Node> {
        let state = self.0.lock();
        let known = state.primaries.iter().find(|node| node.address == address);
        known.map_or_else(|| Node::new(address), Arc::clone)
    }

    /// The primary that Sentinels name. Returns whether it is another one than before.
    pub(super) fn set_primary(&self, address: ConnectionAddr) -> bool {
        let mut state = self.0.lock();
        let before = state.primaries.first();
        if before.is_some_and(|node| node.address == address) {
            return false;
        }
        let before = std::mem::replace(&mut state.primaries, vec![Node::new(address)]);
        state.gone(&before);
        true
    }

    /// Sentinels that another one knows.
    pub(super) fn set_sentinels(&self, sentinels: Vec<ConnectionAddr>) {
        self.0.lock().set_seeds(sentinels);
    }

    /// How many primaries are known.
    pub(super) fn primaries(&self) -> usize {
        self.0.lock().primaries.len()
    }
}

impl State {
    /// The place of a primary. One that is new is added, unless there are too many.
    fn place_of(&mut self, address: ConnectionAddr) -> usize {
        let place = self.primaries.iter().position(|n| n.address == address);
        match place {
            Some(place) => place,
            None if self.primaries.len() >= NODES_MAX => 0,
            None => {
                self.primaries.push(Node::new(address));
                self.primaries.len() - 1
            }
        }
    }

    fn of(&self, slot: Option<u16>) -> Option<&Arc<Node>> {
        let place = match slot.filter(|_| !self.slots.is_empty()) {
            Some(slot) => usize::from(*self.slots.get(usize::from(slot))?),
            // Any node will do: the first one that is not suspect.
            None => {
                let trusted = |node: &Arc<Node>| !node.is_suspect.load(Ordering::Relaxed);
                self.primaries.iter().position(trusted).unwrap_or(0)
            }
        };
        self.primaries.get(place)
    }

    /// A request that waits for a node that is no primary any more stops.
    fn gone(&self, before: &[Arc<Node>]) {
        let stays = |node: &Arc<Node>| self.primaries.iter().any(|other| Arc::ptr_eq(node, other));
        for node in before.iter().filter(|node| !stays(node)) {
            node.left.send_replace(true);
        }
    }

    fn set_seeds(&mut self, others: Vec<ConnectionAddr>) {
        self.seeds.truncate(self.configured);
        for other in others {
            if self.seeds.len() < NODES_MAX && !self.seeds.contains(&other) {
                self.seeds.push(other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> ConnectionAddr {
        ConnectionAddr::Tcp("h".to_owned(), port)
    }

    fn text(node: Option<Arc<Node>>) -> Option<String> {
        node.map(|node| node.text().to_owned())
    }

    fn thirds(ports: [u16; 3]) -> Vec<Shard> {
        let ranges = [(0, 5460), (5461, 10922), (10923, 16383)];
        let shards = ranges.into_iter().zip(ports);
        let shard = |(range, port)| Shard {
            slots: vec![range],
            primary: at(port),
        };
        shards.map(shard).collect()
    }

    #[test]
    fn a_slot_leads_to_its_primary_and_a_suspect_is_asked_about() {
        let topology = Topology::new(&Servers::Cluster(vec![at(1), at(2)]));
        assert!(topology.serving(Some(7)).is_none() && topology.serving(None).is_none());
        topology.set_shards(&thirds([1, 2, 3]), vec![at(4)]);
        assert_eq!(text(topology.serving(Some(5460))).unwrap(), "h:1");
        assert_eq!(text(topology.serving(Some(16383))).unwrap(), "h:3");
        topology.serving(Some(0)).unwrap().suspect();
        assert!(topology.serving(Some(0)).is_none());
        assert_eq!(text(topology.last_known(Some(0))).unwrap(), "h:1");
        assert_eq!(text(topology.serving(None)).unwrap(), "h:2");
        assert!(!topology.whom_to_ask()[..2].contains(&at(1)));
        assert_eq!(topology.whom_to_ask().len(), 4);
        topology.last_known(Some(0)).unwrap().trust();
        assert_eq!(text(topology.serving(Some(0))).unwrap(), "h:1");
    }

    #[test]
    fn a_slot_that_moved_leads_to_where_it_is() {
        let topology = Topology::new(&Servers::Cluster(vec![at(1)]));
        topology.set_shards(&thirds([1, 2, 3]), Vec::new());
        topology.learn(7, at(3));
        topology.learn(8, at(9));
        assert_eq!(text(topology.serving(Some(7))).unwrap(), "h:3");
        assert_eq!(text(topology.serving(Some(8))).unwrap(), "h:9");
        assert_eq!(text(topology.serving(Some(6))).unwrap(), "h:1");
        assert_eq!(topology.primaries(), 4);
    }

    #[test]
    fn without_the_right_to_ask_a_node_is_tried_and_its_refusals_teach() {
        let topology = Topology::new(&Servers::Cluster(vec![at(1), at(2)]));
        topology.assume(at(1));
        assert_eq!(text(topology.serving(Some(7))).unwrap(), "h:1");
        topology.learn(7, at(3));
        topology.serving(Some(8)).unwrap().suspect();
        topology.assume(at(2));
        assert_eq!(text(topology.serving(Some(7))).unwrap(), "h:3");
        assert_eq!(text(topology.serving(Some(8))).unwrap(), "h:2");
    }

    #[tokio::test]
    async fn who_waits_for_a_primary_that_was_replaced_stops() {
        let topology = Topology::new(&Servers::Cluster(vec![at(1)]));
        topology.set_shards(&thirds([1, 2, 3]), Vec::new());
        let (first, second) = (topology.serving(Some(0)), topology.serving(Some(6000)));
        topology.set_shards(&thirds([4, 2, 3]), Vec::new());
        first.unwrap().left().await;
        assert!(!*second.unwrap().left.borrow());
        let watched = Topology::new(&Servers::Sentinel {
            sentinels: vec![at(1)],
            master: "m".to_owned(),
        });
        assert!(watched.serving(None).is_none());
        assert!(watched.set_primary(at(5)) && !watched.set_primary(at(5)));
        let primary = watched.serving(None).unwrap();
        assert!(watched.set_primary(at(6)));
        primary.left().await;
    }

    #[test]
    fn one_server_is_used_whatever_happens_until_it_is_a_node_of_a_cluster() {
        let topology = Topology::new(&Servers::One(at(1)));
        topology.serving(Some(3)).unwrap().suspect();
        assert_eq!(text(topology.serving(Some(3))).unwrap(), "h:1");
        assert!(topology.becomes_cluster() && !topology.becomes_cluster());
        assert!(topology.serving(Some(3)).is_none());
        topology.set_shards(&thirds([1, 2, 3]), Vec::new());
        assert_eq!(text(topology.serving(Some(16000))).unwrap(), "h:3");
    }
}
