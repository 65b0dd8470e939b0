//! A real cluster for one test: primaries and replicas on loopback, ended with the test.

use std::collections::BTreeSet;

use redis::Value;

use crate::redis::{RawRedis, RedisOptions, RedisServer, eventually, free_port};

/// How many slots a cluster has.
const SLOTS: usize = 16384;

/// A running cluster. The first nodes begin as primaries, each with an equal part of the slots; the others
/// as their replicas.
pub struct Cluster {
    /// Its nodes.
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    /// With default options.
    pub async fn start(primaries: usize, replicas: usize) -> Self {
        Self::with(&RedisOptions::default(), primaries, replicas).await
    }

    /// With these options for each node.
    pub async fn with(options: &RedisOptions, primaries: usize, replicas: usize) -> Self {
        let mut buses = Vec::new();
        // A node that is slow is not dead. Where there are replicas, failovers are to come soon.
        let patience = if replicas > 0 { "2000" } else { "15000" };
        let mut start = || {
            let bus = free_port();
            buses.push(bus);
            let options = match options.has_tls() {
                true => options
                    .clone()
                    .set("tls-cluster", "yes")
                    .set("tls-replication", "yes"),
                false => options.clone().tcp(),
            };
            let options = options.set("cluster-enabled", "yes");
            let options = options
                .set("cluster-port", &bus.to_string())
                .set("cluster-node-timeout", patience)
                .set("cluster-allow-replica-migration", "no")
                .set("cluster-require-full-coverage", "no")
                .set("repl-diskless-sync-delay", "0")
                .set("repl-ping-replica-period", "1");
            options.start()
        };
        let nodes: Vec<_> = (0..primaries + replicas).map(|_| start()).collect();
        let cluster = Self { nodes };
        let first = cluster.raw(0).await;
        for (place, node) in cluster.nodes.iter().enumerate() {
            let raw = node.raw().await;
            let epoch = place + 1;
            raw.ask(&format!("CLUSTER SET-CONFIG-EPOCH {epoch}")).await;
            if place < primaries {
                let (from, to) = (
                    SLOTS * place / primaries,
                    SLOTS * (place + 1) / primaries - 1,
                );
                raw.ask(&format!("CLUSTER ADDSLOTSRANGE {from} {to}")).await;
            }
            if place > 0 {
                let (port, bus) = (node.port(), buses[place]);
                first
                    .ask(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))
                    .await;
            }
        }
        cluster.is_known_to_all().await;
        for place in primaries..primaries + replicas {
            let of = cluster.id(place % primaries).await;
            let raw = cluster.raw(place).await;
            raw.ask(&format!("CLUSTER REPLICATE {of}")).await;
        }
        cluster.healed().await;
        cluster
    }

    /// The URL of all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()));
        format!("redis+cluster://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// The URL of one node, by TCP.
    #[must_use]
    pub fn url_of(&self, place: usize) -> String {
        format!("redis://127.0.0.1:{}", self.nodes[place].port())
    }

    /// A connection to one node.
    pub async fn raw(&self, place: usize) -> RawRedis {
        self.nodes[place].raw().await
    }

    /// The id of one node.
    pub async fn id(&self, place: usize) -> String {
        self.raw(place).await.text("CLUSTER MYID").await
    }

    /// The primary of a slot, as a node says that is up.
    pub async fn owner_of_slot(&self, slot: u16) -> usize {
        for place in self.up() {
            let shards = self.raw(place).await.ask("CLUSTER SLOTS").await;
            let Value::Array(ranges) = shards else {
                continue;
            };
            for range in ranges {
                let Value::Array(parts) = range else { continue };
                let number = |value: &Value| redis::from_redis_value::<u64>(value.clone()).ok();
                let (from, to) = (number(&parts[0]), number(&parts[1]));
                let slot = Some(u64::from(slot));
                if from <= slot && slot <= to {
                    let node: Vec<Value> =
                        redis::from_redis_value(parts[2].clone()).expect("a node");
                    let port = number(&node[1]);
                    let is = |node: &RedisServer| Some(u64::from(node.port())) == port;
                    return self.nodes.iter().position(is).expect("a node of ours");
                }
            }
        }
        unreachable!("no node knows the slot {slot}")
    }

    /// The primary of a key.
    pub async fn owner(&self, key: &str) -> usize {
        self.owner_of_slot(hostler::wire::keys::slot(key)).await
    }

    /// A connection to the primary of a key.
    pub async fn at(&self, key: &str) -> RawRedis {
        self.raw(self.owner(key).await).await
    }

    /// Wait until every node that runs knows all, every slot is served, and every replica has caught up.
    pub async fn healed(&self) {
        self.is_known_to_all().await;
        for place in self.up() {
            let raw = self.raw(place).await;
            eventually("a node serves, and follows", async || {
                let (cluster, replication) = (
                    raw.text("CLUSTER INFO").await,
                    raw.text("INFO replication").await,
                );
                let nodes = raw.text("CLUSTER NODES").await;
                cluster.contains("cluster_state:ok")
                    && cluster.contains("cluster_slots_fail:0")
                    && !nodes.contains("fail")
                    && !nodes.contains("handshake")
                    && (replication.contains("role:master")
                        || replication.contains("master_link_status:up"))
            })
            .await;
        }
    }

    async fn is_known_to_all(&self) {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for place in self.up() {
            let raw = self.raw(place).await;
            eventually("a node knows the others", async || {
                raw.text("CLUSTER INFO").await.contains(&known)
            })
            .await;
        }
    }

    /// Move a slot to another node, key by key, while clients use it.
    ///
    /// All nodes agree on the owners before and after. A node may not have heard of the last move of a slot. If it
    /// gets the slot back from an old message, the next owner deletes the keys of the slot: nodes learn the owners
    /// from each other by gossip, with epochs.
    pub async fn migrate(&self, slot: u16, to: usize) {
        self.nodes_agree().await;
        let from = self.owner_of_slot(slot).await;
        if from == to {
            return;
        }
        let (source, target) = (self.raw(from).await, self.raw(to).await);
        let (source_id, target_id) = (self.id(from).await, self.id(to).await);
        target
            .ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {source_id}"))
            .await;
        source
            .ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}"))
            .await;
        loop {
            let keys = source.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 1")).await;
            let keys: Vec<String> = redis::from_redis_value(keys).expect("names of keys");
            let Some(key) = keys.first() else { break };
            let port = self.nodes[to].port();
            // It may have gone meanwhile: then there is nothing to move.
            source
                .ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"))
                .await;
        }
        for node in [&target, &source] {
            node.ask(&format!("CLUSTER SETSLOT {slot} NODE {target_id}"))
                .await;
        }
        for place in self.up() {
            let raw = self.raw(place).await;
            if raw.text("INFO replication").await.contains("role:master") {
                raw.ask(&format!("CLUSTER SETSLOT {slot} NODE {target_id}"))
                    .await;
            }
        }
        self.nodes_agree().await;
    }

    /// Wait until all nodes that run name the same primaries, with the same epochs and slots.
    async fn nodes_agree(&self) {
        let mut nodes = Vec::new();
        for place in self.up() {
            nodes.push(self.raw(place).await);
        }
        eventually("all nodes know the same owners", async || {
            let mut views = BTreeSet::new();
            for node in &nodes {
                views.insert(owners(&node.text("CLUSTER NODES").await));
            }
            views.len() == 1
        })
        .await;
    }

    /// Kill the primary of a key, and wait until a replica has taken its place. Returns the place of the one
    /// that was killed.
    pub async fn fail_over(&mut self, key: &str) -> usize {
        let dead = self.owner(key).await;
        self.nodes[dead].kill();
        self.replaced(key, dead).await;
        dead
    }

    /// Wait until another node than this serves a key.
    pub async fn replaced(&self, key: &str, old: usize) {
        let slot = hostler::wire::keys::slot(key);
        for place in self.up() {
            if place == old {
                continue;
            }
            let raw = self.raw(place).await;
            let old = format!("127.0.0.1:{}@", self.nodes[old].port());
            eventually("a replica has taken over", async || {
                let nodes = raw.text("CLUSTER NODES").await;
                let serves = |line: &&str| {
                    line.contains("master") && !line.contains("fail") && has_slot(line, slot)
                };
                nodes
                    .lines()
                    .any(|line| serves(&line) && !line.contains(&old))
            })
            .await;
        }
    }

    /// The nodes that run.
    fn up(&self) -> Vec<usize> {
        let all = 0..self.nodes.len();
        all.filter(|&place| self.nodes[place].is_running())
            .collect()
    }
}

/// The id, the epoch and the slots of each primary in a reply of `CLUSTER NODES`: the first, the seventh, and
/// all words behind the eighth.
fn owners(nodes: &str) -> BTreeSet<(String, String, String)> {
    let primaries = nodes.lines().filter(|line| line.contains("master"));
    let owner = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (id, epoch) = (words.next(), words.nth(5));
        // Only the node itself names the slots that it is about to move, in brackets.
        let slots: Vec<String> = words
            .skip(1)
            .filter(|slot| !slot.starts_with('['))
            .collect();
        (
            id.unwrap_or_default(),
            epoch.unwrap_or_default(),
            slots.join(" "),
        )
    };
    primaries.map(owner).collect()
}

/// Whether a line of `CLUSTER NODES` names a slot: its ranges stand behind eight words.
fn has_slot(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let bounds = (from.parse::<u16>(), to.parse::<u16>());
        matches!(bounds, (Ok(from), Ok(to)) if from <= slot && slot <= to)
    })
}
