//! What a run does: its load, its hosts and its faults. A seed decides; the same seed plans the same again.

use fastrand::Rng;

use crate::history::{FaultKind, Kind};
use crate::script::Mix;

/// How the server keeps its data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Persistence {
    /// Not at all.
    None,
    /// An append-only file, written to the disk every second.
    EverySecond,
    /// An append-only file, written to the disk before each answer.
    Always,
}

/// What there is before the hosts start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Before {
    /// Nothing: messages are published while hosts serve.
    Nothing,
    /// All messages, unread.
    Backlog,
    /// All messages of a stream, read by this number of consumers that are gone.
    Orphans(u32),
    /// All messages, due at one moment, soon after the hosts start.
    Delayed,
    /// This number of dead letters, beside the messages: they are replayed while hosts serve.
    Dead(u32),
}

/// Where hosts find the most starts of a message, and the dead-letter queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rules {
    /// In their arguments.
    Arguments,
    /// In the policies by pattern.
    Policies,
    /// In a configuration file.
    File,
}

/// The load and the hosts of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The kind of queue.
    pub kind: Kind,
    /// What there is before the hosts start.
    pub before: Before,
    /// How many hosts serve it.
    pub hosts: usize,
    /// The attempts that run on a host at the same time.
    pub concurrency: u32,
    /// How many messages are published.
    pub messages: u32,
    /// How many in a second.
    pub rate: u32,
    /// The most starts of a message.
    pub cap: u32,
    /// Where hosts find that, and the dead-letter queue.
    pub rules: Rules,
    /// What messages say.
    pub mix: Mix,
    /// How the server keeps its data.
    pub persistence: Persistence,
    /// Whether there is a replica, for failovers.
    pub replica: bool,
    /// Whether hosts speak RESP3.
    pub resp3: bool,
    /// Whether hosts record every start.
    pub exact: bool,
    /// How many messages an instance serves.
    pub reuse: u32,
    /// The lease, in milliseconds.
    pub min_idle_ms: u64,
    /// How wrong the clock of the hosts is, in seconds.
    pub skew_s: i64,
    /// Whether hosts abort at the steps of a message's way, one after the other.
    pub aborts: bool,
    /// Whether hosts have no right but those that `docs/security.md` gives them.
    pub least_rights: bool,
    /// Whether hosts speak TLS.
    pub tls: bool,
    /// How many messages have to be handled in a second, at least.
    pub least_rate: u32,
}

impl Load {
    /// The load of most cells: three hosts, for some seconds.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            before: Before::Nothing,
            hosts: 3,
            concurrency: 8,
            messages: 3_000,
            rate: 450,
            cap: 6,
            rules: Rules::Arguments,
            mix: match kind.at_least_once() {
                true => Mix::ALL,
                false => Mix::ACKS,
            },
            persistence: Persistence::EverySecond,
            replica: false,
            resp3: false,
            exact: false,
            reuse: 1,
            min_idle_ms: 2_000,
            skew_s: 0,
            aborts: false,
            least_rights: false,
            tls: false,
            least_rate: 0,
        }
    }
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Action {
    /// When, in milliseconds from the begin of the load.
    pub at_ms: u64,
    /// How long it lasts, in milliseconds.
    pub for_ms: u64,
    /// What.
    pub kind: FaultKind,
    /// Chooses the host, the number of bytes, the settings.
    pub pick: u64,
}

/// A run, before it is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was drawn with.
    pub seed: u64,
    /// The name of the cell of the matrix, or `random`.
    pub cell: String,
    /// The load.
    pub load: Load,
    /// The faults, in order of their times.
    pub actions: Vec<Action>,
}

/// A cell of the matrix: a load, and the kinds of faults that it gets.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The load.
    pub load: Load,
    /// The kinds of faults; drawn one by one.
    pub faults: &'static [FaultKind],
    /// The mean time between two faults, in milliseconds.
    pub every_ms: u64,
    /// The shortest and the longest time that a fault lasts, in milliseconds.
    pub lasts_ms: (u64, u64),
}

/// What can fail at the same time: one fault of each of these at a time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Place {
    Host,
    Server,
    Link,
    Handler,
}

fn place(kind: FaultKind) -> Place {
    use FaultKind as F;
    match kind {
        F::KillHost
        | F::HostComes
        | F::HostDies
        | F::HostAborts
        | F::StopHost
        | F::Starved
        | F::DrainHost
        | F::DrainTimeout
        | F::OtherSettings
        | F::OtherVersion => Place::Host,
        F::Cut | F::CutReply | F::BlackHole | F::Stall | F::SlowLink => Place::Link,
        F::Swap | F::BadSwap | F::Policy | F::HalfWritten => Place::Handler,
        _ => Place::Server,
    }
}

impl Plan {
    /// Whether something happens to the link between hosts and server.
    #[must_use]
    pub fn breaks_link(&self) -> bool {
        let mut kinds = self.actions.iter().map(|action| place(action.kind));
        self.load.replica || kinds.any(|place| place == Place::Link)
    }
}

impl Cell {
    /// The plan that a seed draws for it.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let mut random = Rng::with_seed(seed);
        Plan {
            seed,
            cell: self.name.to_owned(),
            load: self.load.clone(),
            actions: self.actions(&mut random),
        }
    }

    fn actions(&self, random: &mut Rng) -> Vec<Action> {
        let mut actions = Vec::new();
        let until = u64::from(self.load.messages) * 1_000 / u64::from(self.load.rate.max(1));
        // The first fault meets hosts that are at work.
        let mut at_ms = 700;
        let mut busy = std::collections::BTreeMap::<Place, u64>::new();
        while !self.faults.is_empty() && at_ms < until {
            let kind = self.faults[random.usize(..self.faults.len())];
            let (low, high) = self.lasts_ms;
            let for_ms = random.u64(low..=high.max(low));
            let free = busy.get(&place(kind)).copied().unwrap_or(0);
            if free <= at_ms {
                actions.push(Action {
                    at_ms,
                    for_ms,
                    kind,
                    pick: random.u64(..),
                });
                busy.insert(place(kind), at_ms + for_ms + 200);
            }
            at_ms += random.u64(self.every_ms / 3..=self.every_ms * 5 / 3);
        }
        actions
    }

    /// All cells of the matrix.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let (stream, list) = (Load::new(Kind::Stream), Load::new(Kind::List));
        let cell = |name, about, load: &Load, faults| Self {
            name,
            about,
            load: load.clone(),
            faults,
            every_ms: 900,
            lasts_ms: (200, 900),
        };
        let mut cells = vec![
            cell("stream", "a healthy stream", &stream, &[]),
            cell("list", "a healthy reliable list", &list, &[]),
            cell(
                "simple-list",
                "a healthy simple list",
                &Load::new(Kind::SimpleList),
                &[],
            ),
            cell(
                "channel",
                "a healthy channel",
                &Load::new(Kind::Channel),
                &[],
            ),
            cell("order", "one slot, in order", &one_slot(), &[]),
        ];
        cells.extend(both(
            "host-crash",
            "hosts are killed",
            &[FaultKind::KillHost],
            |_| {},
        ));
        cells.extend(both(
            "zombie",
            "hosts stand still beyond their leases",
            &[FaultKind::StopHost],
            |cell| {
                cell.lasts_ms = (1_500, 5_000);
                cell.every_ms = 1_500;
            },
        ));
        cells.extend(both("killers", "messages kill their hosts", &[], |cell| {
            cell.load.mix.killers = 400;
            cell.load.mix.fails = false;
            // The pace is that of the killers: each of their starts ends a host, and a lease.
            cell.load.cap = 4;
            cell.load.min_idle_ms = 800;
            cell.load.messages = 2_000;
        }));
        cells.extend(both(
            "steps",
            "hosts abort at each step of a message's way",
            // Not every step is met soon: then the next host takes the place.
            &[FaultKind::KillHost],
            |cell| {
                cell.load.aborts = true;
                // Innocents die with their hosts, again and again.
                cell.load.cap = 12;
                // Some handlers take so long that their leases are renewed.
                cell.load.min_idle_ms = 1_000;
                cell.load.mix.sleep_ms = 400;
                cell.load.concurrency = 16;
                cell.load.rate = 250;
                cell.load.messages = 2_000;
                cell.every_ms = 1_000;
            },
        ));
        cells.extend(both(
            "redis-crash",
            "Redis is killed, fsync always",
            &[FaultKind::KillRedis],
            |cell| {
                cell.load.persistence = Persistence::Always;
                cell.every_ms = 1_800;
            },
        ));
        cells.extend(both(
            "redis-restart",
            "Redis is killed, shut down or stopped, fsync every second",
            &[
                FaultKind::KillRedis,
                FaultKind::RestartRedis,
                FaultKind::PauseRedis,
            ],
            |cell| {
                cell.every_ms = 1_800;
            },
        ));
        cells.extend(both(
            "power-loss",
            "the end of the append-only file is lost",
            &[FaultKind::PowerLoss],
            |cell| {
                cell.every_ms = 2_500;
            },
        ));
        cells.extend(both(
            "black-hole",
            "nothing passes for longer than a lease",
            &[FaultKind::BlackHole, FaultKind::Stall],
            |cell| {
                cell.lasts_ms = (500, 5_000);
                cell.every_ms = 2_500;
            },
        ));
        cells.extend(both(
            "cut-reply",
            "replies are cut after some bytes",
            &[FaultKind::CutReply, FaultKind::CutReply, FaultKind::Cut],
            |cell| {
                cell.every_ms = 300;
                cell.lasts_ms = (50, 150);
            },
        ));
        cells.extend(both(
            "slow-link",
            "replies take long, in small pieces",
            &[FaultKind::SlowLink],
            |cell| {
                cell.lasts_ms = (1_000, 3_000);
                cell.load.rate = 250;
                cell.load.messages = 1_500;
            },
        ));
        cells.extend(both(
            "failover",
            "a replica takes the place of Redis",
            &[FaultKind::Failover],
            |cell| {
                cell.load.replica = true;
                cell.load.persistence = Persistence::None;
                cell.every_ms = 3_500;
            },
        ));
        cells.extend(both(
            "clock",
            "the clock of Redis jumps by an hour",
            &[FaultKind::ClockJump],
            |cell| {
                cell.lasts_ms = (1_000, 3_000);
                cell.every_ms = 2_500;
            },
        ));
        cells.extend(both(
            "skew",
            "the clock of the hosts is wrong by hours, hosts are killed",
            &[FaultKind::KillHost],
            |cell| {
                cell.load.skew_s = -7 * 3_600;
            },
        ));
        cells.extend(both(
            "refusals",
            "Redis is out of memory, its disk is full",
            &[FaultKind::OutOfMemory, FaultKind::DiskFull],
            |cell| {
                cell.lasts_ms = (500, 2_000);
                cell.every_ms = 2_000;
            },
        ));
        cells.extend(both(
            "operator",
            "an operator closes connections, and flushes scripts",
            &[
                FaultKind::ClientKill,
                FaultKind::ScriptFlush,
                FaultKind::Policy,
            ],
            |cell| {
                cell.every_ms = 500;
            },
        ));
        cells.extend(both(
            "least-rights",
            "hosts have the rights of docs/security.md, and are killed and cut off",
            &[FaultKind::KillHost, FaultKind::Cut, FaultKind::DrainHost],
            |cell| cell.load.least_rights = true,
        ));
        cells.extend(both(
            "tls",
            "TLS and RESP3, while connections are cut and stall",
            &[
                FaultKind::Cut,
                FaultKind::CutReply,
                FaultKind::BlackHole,
                FaultKind::KillHost,
            ],
            |cell| {
                cell.load.tls = true;
                cell.load.resp3 = true;
            },
        ));
        cells.extend(both(
            "swap",
            "the handler is swapped, also for files that are none",
            &[FaultKind::Swap, FaultKind::Swap, FaultKind::BadSwap],
            |cell| {
                cell.load.mix.says_version = true;
                cell.every_ms = 1_500;
            },
        ));
        cells.extend(both(
            "rolling",
            "hosts are drained and replaced, also by others",
            &[FaultKind::DrainHost, FaultKind::OtherSettings],
            |_| {},
        ));
        cells.extend(both(
            "slow",
            "handlers become slow on a fast host, and other hosts come",
            &[FaultKind::HostComes],
            |cell| {
                cell.load.hosts = 1;
                cell.load.mix = Mix {
                    slow_after: 800,
                    ..Mix::ACKS
                };
                cell.load.messages = 1_400;
                cell.every_ms = 1_500;
            },
        ));
        cells.extend(both(
            "policies",
            "policies cannot be read while hosts are killed and replaced, and Redis is killed",
            &[
                FaultKind::Unreadable,
                FaultKind::Unreadable,
                FaultKind::KillHost,
                FaultKind::DrainHost,
                FaultKind::KillRedis,
            ],
            |cell| {
                cell.load.rules = Rules::Policies;
                cell.load.persistence = Persistence::Always;
            },
        ));
        cells.extend(both(
            "half-written",
            "handler and configuration are written in place, with a pause, while hosts are replaced",
            &[
                FaultKind::HalfWritten,
                FaultKind::HalfWritten,
                FaultKind::DrainHost,
            ],
            |cell| {
                cell.load.rules = Rules::File;
                cell.load.mix.says_version = true;
                cell.lasts_ms = (50, 600);
            },
        ));
        cells.push(Self {
            load: Load {
                mix: Mix {
                    sleep_ms: 20,
                    ..Mix::ACKS
                },
                ..Load::new(Kind::SimpleList)
            },
            ..cell(
                "simple-list-faults",
                "hosts and Redis are killed, at most once",
                &stream,
                &[FaultKind::KillHost, FaultKind::DrainHost, FaultKind::Cut],
            )
        });
        cells.push(cell(
            "channel-faults",
            "hosts die and connections break, at most once",
            &Load::new(Kind::Channel),
            &[FaultKind::KillHost, FaultKind::DrainHost, FaultKind::Cut],
        ));
        cells
    }

    /// Hosts of two releases serve one queue, and take each other's places, to and fro. They need the other
    /// release.
    #[must_use]
    pub fn upgrades() -> [Self; 2] {
        const FAULTS: &[FaultKind] = &[
            FaultKind::OtherVersion,
            FaultKind::OtherVersion,
            FaultKind::OtherVersion,
            FaultKind::KillHost,
        ];
        let about = "hosts are drained and replaced by another release, and back";
        both("upgrade", about, FAULTS, |cell| cell.load.messages = 6_000)
    }

    /// A million messages, while a thousand hosts are killed.
    #[must_use]
    pub fn kills() -> Self {
        Self {
            name: "kills",
            about: "a million messages, a thousand kills",
            load: Load {
                messages: 1_000_000,
                rate: 2_000,
                concurrency: 16,
                // Innocents are killed with their hosts, again and again.
                cap: 30,
                mix: Mix {
                    large: 0,
                    brisk: true,
                    ..Mix::ALL
                },
                ..Load::new(Kind::Stream)
            },
            faults: &[FaultKind::KillHost],
            every_ms: 500,
            lasts_ms: (0, 0),
        }
    }

    /// Storms: much at once. They take longer than the cells of the matrix.
    #[must_use]
    pub fn storms() -> Vec<Self> {
        let storm = |name, about, before, messages, kind| Self {
            name,
            about,
            load: Load {
                before,
                messages,
                concurrency: 16,
                mix: Mix {
                    sleep_ms: 0,
                    ..Mix::ACKS
                },
                // A tenth of what an optimized host does on two cores that do other work as well.
                least_rate: 300,
                ..Load::new(kind)
            },
            faults: &[],
            every_ms: 900,
            lasts_ms: (200, 900),
        };
        let mut herd = storm(
            "herd",
            "50 hosts start at once, before 5,000 messages",
            Before::Backlog,
            5_000,
            Kind::Stream,
        );
        herd.load.hosts = 50;
        herd.load.concurrency = 2;
        // 50 hosts on few cores: a lease must outlast their start.
        herd.load.min_idle_ms = 10_000;
        vec![
            herd,
            storm(
                "orphans",
                "100,000 messages of one dead host",
                Before::Orphans(1),
                100_000,
                Kind::Stream,
            ),
            storm(
                "consumers",
                "10,000 consumers that are gone, each with a message",
                Before::Orphans(10_000),
                10_000,
                Kind::Stream,
            ),
            storm(
                "backlog",
                "a backlog of 1,000,000 messages",
                Before::Backlog,
                1_000_000,
                Kind::Stream,
            ),
            storm(
                "list-backlog",
                "a backlog of 1,000,000 messages",
                Before::Backlog,
                1_000_000,
                Kind::List,
            ),
            storm(
                "delayed",
                "1,000,000 delayed messages, due at one moment",
                Before::Delayed,
                1_000_000,
                Kind::Stream,
            ),
            storm(
                "list-delayed",
                "1,000,000 delayed messages, due at one moment",
                Before::Delayed,
                1_000_000,
                Kind::List,
            ),
            storm(
                "replay",
                "100,000 dead letters replayed, beside 20,000 new messages",
                Before::Dead(100_000),
                20_000,
                Kind::Stream,
            ),
            storm(
                "list-replay",
                "100,000 dead letters replayed, beside 20,000 new messages",
                Before::Dead(100_000),
                20_000,
                Kind::List,
            ),
        ]
    }

    /// Whether it needs hosts with fault points.
    #[must_use]
    pub fn needs_fault_points(&self) -> bool {
        self.load.mix.killers > 0 || self.load.aborts
    }

    /// The cell of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let others = Self::storms().into_iter().chain([Self::kills()]);
        let others = others.chain(Self::upgrades());
        let mut all = Self::all().into_iter().chain(others);
        all.find(|cell| cell.name == name)
    }

    /// A combination of faults, drawn by a seed: with `upgrades`, another release takes part. Messages kill their
    /// hosts only if hosts have fault points.
    #[must_use]
    pub fn random(seed: u64, upgrades: bool, fault_points: bool) -> Self {
        use FaultKind as F;
        let mut random = Rng::with_seed(seed);
        // Every kind is in the list as often as it is likely.
        const FAULTS: [&[F]; 8] = [
            &[F::KillHost, F::StopHost, F::DrainHost, F::OtherSettings],
            &[F::KillHost, F::KillRedis, F::Cut, F::CutReply],
            &[
                F::KillHost,
                F::BlackHole,
                F::PauseRedis,
                F::ClientKill,
                F::Swap,
            ],
            &[F::StopHost, F::Stall, F::KillRedis, F::ScriptFlush],
            &[
                F::KillHost,
                F::CutReply,
                F::CutReply,
                F::OutOfMemory,
                F::DrainHost,
            ],
            &[F::KillHost, F::SlowLink, F::DiskFull, F::Policy, F::BadSwap],
            &[F::PowerLoss, F::KillHost, F::CutReply, F::RestartRedis],
            &[
                F::KillHost,
                F::StopHost,
                F::KillRedis,
                F::BlackHole,
                F::CutReply,
                F::Cut,
                F::Swap,
                F::Policy,
                F::OutOfMemory,
                F::OtherSettings,
                F::ClockJump,
                F::SlowLink,
            ],
        ];
        const UPGRADES: &[F] = &[
            F::OtherVersion,
            F::OtherVersion,
            F::OtherVersion,
            F::KillHost,
            F::CutReply,
        ];
        let kind = if random.bool() {
            Kind::Stream
        } else {
            Kind::List
        };
        let faults = match upgrades && random.u8(0..3) == 0 {
            true => UPGRADES,
            false => FAULTS[random.usize(..FAULTS.len())],
        };
        let persistence = match random.u8(0..3) {
            0 => Persistence::Always,
            _ => Persistence::EverySecond,
        };
        let mix = Mix {
            sleep_ms: *random.choice(&[0, 5, 20, 100]).unwrap_or(&5),
            says_version: faults.contains(&F::Swap),
            killers: match random.u8(0..4) {
                0 if fault_points => 1_500,
                _ => 0,
            },
            large: *random.choice(&[0, 16 << 10, 256 << 10]).unwrap_or(&0),
            fails: true,
            brisk: false,
            slow_after: 0,
        };
        Self {
            name: "random",
            about: "a combination of faults, drawn by a seed",
            load: Load {
                hosts: random.usize(2..4),
                concurrency: random.u32(1..17),
                persistence,
                mix,
                // Innocents beside killers and many kills need room.
                cap: 12,
                resp3: random.bool(),
                exact: random.u8(0..3) == 0,
                reuse: if random.bool() { 1 } else { 50 },
                min_idle_ms: random.u64(1_000..3_000),
                ..Load::new(kind)
            },
            faults,
            every_ms: random.u64(500..1_500),
            lasts_ms: (100, random.u64(500..4_000)),
        }
    }
}

/// Messages in order: one host, one slot, and nothing that takes a message back.
fn one_slot() -> Load {
    Load {
        hosts: 1,
        concurrency: 1,
        messages: 1_500,
        mix: Mix::ACKS,
        ..Load::new(Kind::Stream)
    }
}

/// The same cell for both kinds that promise at least once.
fn both(
    name: &'static str,
    about: &'static str,
    faults: &'static [FaultKind],
    set: impl Fn(&mut Cell),
) -> [Cell; 2] {
    [Kind::Stream, Kind::List].map(|kind| {
        let mut cell = Cell {
            name: match kind {
                Kind::List => list_name(name),
                _ => name,
            },
            about,
            load: Load::new(kind),
            faults,
            every_ms: 900,
            lasts_ms: (200, 900),
        };
        set(&mut cell);
        cell
    })
}

/// The name of a cell for a reliable list.
fn list_name(name: &'static str) -> &'static str {
    const NAMES: [(&str, &str); 23] = [
        ("slow", "list-slow"),
        ("policies", "list-policies"),
        ("half-written", "list-half-written"),
        ("upgrade", "list-upgrade"),
        ("host-crash", "list-host-crash"),
        ("zombie", "list-zombie"),
        ("killers", "list-killers"),
        ("steps", "list-steps"),
        ("least-rights", "list-least-rights"),
        ("tls", "list-tls"),
        ("redis-crash", "list-redis-crash"),
        ("redis-restart", "list-redis-restart"),
        ("power-loss", "list-power-loss"),
        ("black-hole", "list-black-hole"),
        ("cut-reply", "list-cut-reply"),
        ("slow-link", "list-slow-link"),
        ("failover", "list-failover"),
        ("clock", "list-clock"),
        ("skew", "list-skew"),
        ("refusals", "list-refusals"),
        ("operator", "list-operator"),
        ("swap", "list-swap"),
        ("rolling", "list-rolling"),
    ];
    let found = NAMES.iter().find(|(stream, _)| *stream == name);
    found.map_or(name, |(_, list)| list)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_plans_the_same_run_again() {
        for seed in 0..50 {
            let plan = || Cell::random(seed, true, false).plan(seed);
            assert_eq!(plan().actions, plan().actions);
            assert_eq!(format!("{:?}", plan().load), format!("{:?}", plan().load));
        }
    }

    #[test]
    fn cells_have_names_of_their_own_and_faults_where_they_say_so() {
        let cells = Cell::all();
        let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), cells.len());
        for cell in &cells {
            let plan = cell.plan(1);
            assert_eq!(
                plan.actions.is_empty(),
                cell.faults.is_empty(),
                "{}",
                cell.name
            );
        }
    }

    #[test]
    fn one_place_has_one_fault_at_a_time() {
        for seed in 0..200 {
            let actions = Cell::random(seed, false, true).plan(seed).actions;
            for (number, one) in actions.iter().enumerate() {
                for other in &actions[..number] {
                    let is_apart = place(one.kind) != place(other.kind);
                    assert!(is_apart || other.at_ms + other.for_ms < one.at_ms, "{seed}");
                }
            }
        }
    }
}
