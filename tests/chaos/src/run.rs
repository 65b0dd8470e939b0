//! A run: servers, hosts and a publisher, the faults of a plan, and the end: heal, drain, harvest, check.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use hostler::runtime::fault_point::VARIABLE;
use hostler_tests::guests::{guest, handler, of_the_first_release};
use hostler_tests::host::{HostOptions, binary};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, documented_user};
use hostler_tests::skew::Skewed;
use hostler_tests::tls::TlsFront;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::check::{Judgement, check};
use crate::fleet::{Fleet, Waits, rss_kib};
use crate::harvest::{CLAIMS, DEAD, GROUP, backlog, harvest, written};
use crate::history::{Fault, FaultKind, Harvest, History, Kind, Published, Sample, Sent, Settings};
use crate::plan::{Action, Before, Load, Persistence, Plan, Rules};
use crate::publisher::{QUEUE, To, fill, publish};
use crate::script::{SLOW_MS, Script};

use self::faults::VERSIONS;

mod faults;

/// The password of the hosts; it must not appear anywhere.
const SECRET: &str = "s3cr3t-0f-the-ch40s-suite";
/// The longest wait between two attempts.
const BACKOFF_MAX_MS: u64 = 1_000;
/// How long hosts may take to drain.
const DRAIN_MS: u64 = 8_000;
/// How long a queue may take to be empty after the last fault, beside the time for its messages.
const EMPTY_MS: u64 = 60_000;
/// How long hosts may take to be ready.
const READY: Duration = Duration::from_secs(60);
/// The size of the append-only file is kept for this time.
const KEPT_SIZES_MS: u64 = 4_000;
/// How often processes are looked at, in milliseconds.
const SAMPLE_MS: u64 = 1_000;
/// A thread that has waited this long for a CPU, of the time between two looks, may miss a renewal of its leases.
const STARVED_MS: u64 = 300;
/// How often a replay may be started.
const MOST_REPLAYS: u32 = 20;
/// What the command said that replays dead letters.
const REPLAY_LOG: &str = "replay.log";
/// The largest append-only file that is kept of a bad run.
const KEPT_BYTES: u64 = 64 << 20;
/// Memory of a host beside its handlers.
const BASE_KIB: u64 = 200 << 10;
/// Memory of a handler that takes what it gets.
const HANDLER_KIB: u64 = 64 << 10;
/// Memory of a handler that only acknowledges.
const SMALL_HANDLER_KIB: u64 = 1 << 10;
/// Memory of a server beside its messages: its buffers, and what it knows of those that are under way.
const SERVER_KIB: u64 = 64 << 10;
/// How much later than they are filled in delayed messages are due, in milliseconds: hosts start meanwhile.
const DUE_MS: u64 = 5_000;
/// How many delayed messages are filled in, at least, in a millisecond.
const FILLED: u64 = 40;
/// The steps of a message's way at which hosts abort, and how often they are passed before, at most.
const STEPS: [(&str, u32); 15] = [
    ("Fetch-after", 40),
    ("Record-before", 20),
    ("Record-after", 20),
    ("Start", 200),
    ("Verdict", 200),
    ("Acknowledge-before", 40),
    ("Acknowledge-after", 40),
    ("Settle-before", 20),
    ("Settle-after", 20),
    ("DeadLetter-before", 20),
    ("DeadLetter-after", 20),
    ("Due-after", 40),
    ("Orphans-after", 5),
    ("Renew-before", 2),
    ("Renew-after", 2),
];

/// Which programs take part.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The host under test; without, the one that the tests build.
    pub hostler: Option<PathBuf>,
    /// The host of another release, for upgrades.
    pub old: Option<PathBuf>,
}

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub history: History,
    /// The judgement.
    pub judgement: Judgement,
    /// What the server says that it is.
    pub server: String,
    /// Logs, as long as this is kept.
    pub dir: TempDir,
}

/// Run a plan.
///
/// # Errors
/// It could not be run: that is no judgement of hostler.
pub async fn run(plan: &Plan, programs: &Programs) -> Result<Outcome> {
    let mut world = World::new(plan, programs.clone())?;
    let before = world.before().await?;
    world.start_all().await?;
    let messages = match plan.load.before {
        Before::Nothing => world.load(before).await?,
        Before::Dead(_) => {
            world.replay()?;
            world.load(before).await?
        }
        Before::Backlog | Before::Orphans(_) | Before::Delayed => before,
    };
    world.end(messages).await
}

/// A fault that has begun.
#[derive(Debug)]
struct Open {
    /// Its place among the faults of the history.
    place: usize,
    heal_ms: u64,
    kind: FaultKind,
    host: Option<u16>,
    pick: u64,
}

struct World {
    plan: Plan,
    programs: Programs,
    begun: Instant,
    server: RedisServer,
    replica: Option<RedisServer>,
    options: RedisOptions,
    proxy: Proxy,
    skewed: Option<Skewed>,
    /// How far ahead the clock of the server is, in seconds.
    ahead_s: i64,
    handler: PathBuf,
    component: Vec<u8>,
    version: u64,
    fleet: Fleet,
    faults: Vec<Fault>,
    open: Vec<Open>,
    samples: Vec<Sample>,
    waits: Waits,
    sizes: VecDeque<(u64, u64)>,
    commands: Vec<Child>,
    /// The command that replays dead letters, until it has ended.
    replaying: Option<Child>,
    /// How often it was started.
    replays: u32,
    /// TLS in front of the proxy, and the certificate of its authority.
    tls: Option<(TlsFront, PathBuf)>,
    /// Whether hosts that start abort at a step.
    is_aborting: bool,
    /// How many have, at each step.
    steps: BTreeMap<String, u64>,
    is_ending: bool,
    begun_ms: i64,
    dir: TempDir,
}

impl World {
    fn new(plan: &Plan, programs: Programs) -> Result<Self> {
        let load = &plan.load;
        let dir = TempDir::with_prefix("chaos")?;
        let jumps = plan
            .actions
            .iter()
            .any(|action| action.kind == FaultKind::ClockJump);
        let skewed = (jumps || load.skew_s != 0).then(Skewed::new);
        let options = match (&skewed, jumps) {
            (Some(skewed), true) => skewed.server(),
            _ => RedisOptions::default(),
        };
        let options = match load.persistence {
            Persistence::None => options,
            Persistence::EverySecond => options.appendonly(),
            Persistence::Always => options.appendonly().set("appendfsync", "always"),
        };
        let options = options
            .set("auto-aof-rewrite-percentage", "0")
            .set("enable-protected-configs", "yes")
            .set("repl-diskless-sync-delay", "0")
            .user(&user(load));
        let options = if load.replica { options.tcp() } else { options };
        let server = options.clone().start();
        let proxy = Proxy::to_socket(&server.socket(), plan.seed)?;
        let tls = match load.tls {
            true => {
                let ca = dir.path().join("ca.pem");
                let url = proxy.url();
                let socket = Path::new(url.trim_start_matches("unix://"));
                Some((TlsFront::start(socket, &ca)?, ca))
            }
            false => None,
        };
        let component = match (std::fs::read(guest("scripted"))?, &programs.old) {
            (component, None) => component,
            (component, Some(_)) => of_the_first_release(&component),
        };
        let handler = dir.path().join("handler.wasm");
        std::fs::write(&handler, &component)?;
        let begun_ms = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map(|since| i64::try_from(since.as_millis()))??;
        let keep_logs = load.messages <= 100_000;
        let fleet = Fleet::new(dir.path(), begun_ms, load.skew_s * 1_000, SECRET, keep_logs);
        let mut world = Self {
            plan: plan.clone(),
            programs,
            begun: Instant::now(),
            server,
            replica: None,
            options,
            proxy,
            skewed,
            ahead_s: 0,
            handler,
            component,
            version: 0,
            fleet,
            faults: Vec::new(),
            open: Vec::new(),
            samples: Vec::new(),
            waits: Waits::default(),
            sizes: VecDeque::new(),
            commands: Vec::new(),
            replaying: None,
            replays: 0,
            tls,
            is_aborting: load.aborts,
            steps: BTreeMap::new(),
            is_ending: false,
            begun_ms,
            dir,
        };
        if load.replica {
            world.replica = Some(world.new_replica());
        }
        Ok(world)
    }

    /// What there is before the hosts start.
    async fn before(&mut self) -> Result<Vec<Sent>> {
        let load = self.plan.load.clone();
        let (messages, to) = match load.before {
            Before::Nothing => return Ok(Vec::new()),
            Before::Backlog | Before::Orphans(_) => (load.messages, To::Queue),
            Before::Delayed => (load.messages, To::Delayed(self.due_ms()?)),
            Before::Dead(letters) => (letters, To::Queue),
        };
        let mut scripts = self.scripts();
        scripts.truncate(messages as usize);
        let body = scripts.first().map(Script::body).unwrap_or_default();
        if scripts.iter().any(|script| script.body() != body) {
            bail!("the messages of a storm are all the same");
        }
        let url = self.server.url();
        fill(url, load.kind, to, messages, body).await?;
        let raw = self.server.raw().await;
        match load.before {
            Before::Orphans(consumers) => {
                raw.ask(&format!("XGROUP CREATE {QUEUE} {GROUP} 0")).await;
                let each = messages.div_ceil(consumers.max(1));
                for consumer in 0..consumers {
                    let read = format!(
                        "XREADGROUP GROUP {GROUP} gone-{consumer} COUNT {each} STREAMS {QUEUE} >"
                    );
                    raw.ask(&read).await;
                }
            }
            Before::Dead(_) => self.let_die().await?,
            _ => {}
        }
        self.sample();
        let at_ms = match to {
            To::Queue => 0,
            To::Delayed(due) => due - u64::try_from(self.begun_ms)?,
        };
        let sent = |script| Sent {
            script,
            at_ms,
            published: Published::Ok,
        };
        Ok(scripts.into_iter().map(sent).collect())
    }

    /// When delayed messages are due: the hosts are ready, in milliseconds since 1970.
    fn due_ms(&self) -> Result<u64> {
        let fills = u64::from(self.plan.load.messages) / FILLED;
        Ok(u64::try_from(self.begun_ms)? + self.now_ms() + fills + DUE_MS)
    }

    /// Let a handler drop everything that is in the queue.
    async fn let_die(&self) -> Result<()> {
        let path = self.dir.path().join("drops.wasm");
        // The outcome is at 512, and its case is the third: `drop`, without a reason.
        let drops = "(i32.store8 (i32.const 512) (i32.const 2)) (i32.const 512)";
        std::fs::write(&path, handler("", drops))?;
        let stderr = self.dir.path().join("drops.log");
        let mut child = self
            .host_options(None, false)
            .flag("handler", &path.display().to_string())
            .flags("concurrency=16 until-empty=true log-level=error")
            .start_into(std::fs::File::create(&stderr)?);
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => bail!("no dead letters: {}", std::fs::read_to_string(stderr)?),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Bring the dead letters back, while hosts serve.
    fn replay(&mut self) -> Result<()> {
        let program = self.programs.hostler.clone().unwrap_or_else(binary);
        let child = Command::new(program)
            .env_clear()
            .args(["dlq", "replay", "--redis", &self.server.url(), DEAD])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.dir.path().join(REPLAY_LOG))?)
            .spawn()?;
        self.replaying = Some(child);
        self.replays += 1;
        Ok(())
    }

    /// Whether all dead letters are back. A server that answers no client for seconds ends a replay: then another
    /// one goes on, as its operator would.
    fn is_replayed(&mut self) -> Result<bool> {
        let Some(command) = &mut self.replaying else {
            return Ok(true);
        };
        match command.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(_) if self.replays < MOST_REPLAYS => {
                self.replay()?;
                Ok(false)
            }
            Some(_) => {
                let said = std::fs::read_to_string(self.dir.path().join(REPLAY_LOG))?;
                bail!("`dlq replay` failed {MOST_REPLAYS} times: {said}");
            }
        }
    }

    /// The scripts of the plan: those of dead letters first.
    fn scripts(&self) -> Vec<Script> {
        let load = &self.plan.load;
        let letters = match load.before {
            Before::Dead(letters) => letters,
            _ => 0,
        };
        let mut random = fastrand::Rng::with_seed(self.plan.seed ^ 0x5eed);
        (0..letters + load.messages)
            .map(|number| {
                let mut script = load.mix.draw(&mut random);
                if load.mix.slow_after > 0 && number >= load.mix.slow_after {
                    for step in &mut script.steps {
                        step.sleep_ms += SLOW_MS;
                    }
                }
                script
            })
            .collect()
    }

    async fn start_all(&mut self) -> Result<()> {
        match self.plan.load.rules {
            Rules::Arguments => {}
            Rules::Policies => self.set_policies().await?,
            Rules::File => std::fs::write(self.file(), self.rules(1))?,
        }
        let actions = &self.plan.actions;
        let changes = actions
            .iter()
            .any(|action| action.kind == FaultKind::OtherVersion);
        for place in 0..self.plan.load.hosts {
            // Half of the hosts begin with the other release.
            let is_old = changes && self.programs.old.is_some() && place % 2 == 0;
            self.start_host(None, is_old)?;
        }
        self.until_ready().await
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn new_replica(&self) -> RedisServer {
        let port = self.server.port().to_string();
        let options = self.options.clone();
        options.words("replicaof", &["127.0.0.1", &port]).start()
    }

    /// The way to the server: through the proxy only if something happens to the link, because that is slow.
    fn link(&self) -> String {
        match self.plan.breaks_link() {
            true => self.proxy.url(),
            false => self.server.url(),
        }
    }

    /// The settings of a host; `pick` chooses others than those of the plan.
    fn host_options(&self, pick: Option<u64>, is_old: bool) -> HostOptions {
        let load = &self.plan.load;
        let url = match &self.tls {
            None => format!("{}?user=app", self.link()),
            Some((tls, _)) => tls.url().replace("://", "://app@") + "?",
        };
        let url = match load.resp3 {
            true => url + "&protocol=resp3",
            false => url,
        };
        let mut random = fastrand::Rng::with_seed(pick.unwrap_or(0));
        let (concurrency, min_idle) = match pick {
            None => (load.concurrency, load.min_idle_ms),
            Some(_) => (
                random.u32(1..=load.concurrency),
                random.u64(load.min_idle_ms / 2..=load.min_idle_ms),
            ),
        };
        let options = HostOptions::at(&url)
            .without("stream")
            .without("group")
            .directory(self.dir.path())
            .variable("HOSTLER_REDIS_PASSWORD", SECRET)
            .flag("handler", &self.handler.display().to_string())
            .flag("concurrency", &concurrency.to_string())
            .flag("reuse", &load.reuse.to_string())
            .flag("drain-timeout", &format!("{DRAIN_MS}ms"))
            .flags("timeout=20s cpu=500ms limit-log-rate=1GiB wait-redis=60s breaker=off admin=127.0.0.1:0");
        let options = match &self.tls {
            Some((_, ca)) => options.flag("redis-ca", &ca.display().to_string()),
            None => options,
        };
        let options = match self.is_aborting {
            true => options.variable(VARIABLE, &self.abort_at()),
            false => options,
        };
        let at_least_once = |options: HostOptions| {
            let options = match load.rules {
                Rules::Arguments => options
                    .flag("dead-letter", DEAD)
                    .flag("max-deliveries", &load.cap.to_string())
                    .flags("dead-letter-max-len=100000000"),
                Rules::Policies => options,
                Rules::File => options.flag("config", &self.file().display().to_string()),
            };
            options
                .flag("min-idle", &format!("{min_idle}ms"))
                .flag("backoff-max", &format!("{BACKOFF_MAX_MS}ms"))
                .flag(
                    "attempt-accounting",
                    if load.exact { "exact" } else { "lazy" },
                )
                .flags("orphan-scan=200ms")
        };
        let options = match load.kind {
            Kind::Stream => at_least_once(options.flag("stream", QUEUE).flag("group", GROUP)),
            Kind::List => at_least_once(options.flag("list", QUEUE).flag("reliable", "true"))
                .flag("recovery-zset", CLAIMS),
            Kind::SimpleList => options.flag("list", QUEUE),
            Kind::Channel => options.flag("channel", QUEUE).flags("buffer=100000"),
        };
        let options = match (&self.programs.old, &self.programs.hostler) {
            (Some(old), _) if is_old => options.binary(old),
            (_, Some(hostler)) => options.binary(hostler),
            _ => options,
        };
        match &self.skewed {
            Some(skewed) if load.skew_s != 0 => skewed.turn(options, load.skew_s / 3_600),
            _ => options,
        }
    }

    /// The step at which the host with this number aborts, and how often it may pass it: each one in turn.
    fn step(&self, number: u16) -> (&'static str, u32) {
        let turn = self.plan.seed.wrapping_add(number.into()) % STEPS.len() as u64;
        STEPS[usize::try_from(turn).unwrap_or(0)]
    }

    /// The value of the variable that gives the host its step, and a pass that the seed draws.
    fn abort_at(&self) -> String {
        let number = self.fleet.started();
        let (step, most) = self.step(number);
        let mut random = fastrand::Rng::with_seed(self.plan.seed ^ u64::from(number));
        format!("{step}:{}", random.u32(1..=most))
    }

    fn start_host(&mut self, pick: Option<u64>, is_old: bool) -> Result<()> {
        let options = self.host_options(pick, is_old);
        self.fleet.start(&options, is_old)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.fleet.is_ready() {
            self.look()?;
            let mut exits = self.fleet.exits.iter();
            let ended = exits.any(|exit| !(exit.aborted && self.plan.load.aborts));
            if begun.elapsed() > READY || ended {
                bail!("no host is ready: {:?}", self.fleet.exits);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Read the logs, and replace the hosts that have ended by themselves.
    fn look(&mut self) -> Result<()> {
        let now = self.now_ms();
        let mut died = self.fleet.look(now, DRAIN_MS + 30_000)?;
        let mut replaced = 0;
        for fault in died.iter_mut().filter(|f| f.kind == FaultKind::HostDies) {
            replaced += 1;
            if self.plan.load.aborts {
                fault.kind = FaultKind::HostAborts;
                let (step, _) = self.step(fault.host.unwrap_or(0));
                *self.steps.entry(step.to_owned()).or_default() += 1;
            }
        }
        self.faults.extend(died);
        if self.fleet.exits.len() > 500 {
            bail!(
                "hosts end by themselves, again and again: {:?}",
                self.fleet.exits.last()
            );
        }
        for _ in 0..replaced {
            // One that a message killed while it stopped has been replaced before.
            if self.fleet.hosts.len() < self.plan.load.hosts && !self.is_ending {
                self.start_host(None, false)?;
            }
        }
        Ok(())
    }

    fn sample(&mut self) {
        let at_ms = self.now_ms();
        let last_ms = self.samples.last().map_or(0, |last| last.at_ms);
        if at_ms < last_ms + SAMPLE_MS {
            return;
        }
        self.samples.push(Sample {
            at_ms,
            hosts: self.fleet.sample(),
            redis_kib: match self.server.is_running() {
                true => rss_kib(self.server.pid()).unwrap_or(0),
                false => 0,
            },
        });
        let mut pids: Vec<(Option<u16>, u32)> = Vec::new();
        for host in self.fleet.all() {
            pids.push((Some(host.number), host.pid()));
        }
        if self.server.is_running() {
            pids.push((None, self.server.pid()));
        }
        for (host, pid) in pids {
            if self.waits.longest_ms(pid) >= STARVED_MS {
                self.starved(host, last_ms, at_ms);
            }
        }
    }

    /// The machine has let a process wait: for its peers that looks like a host that stands still.
    fn starved(&mut self, host: Option<u16>, from_ms: u64, until_ms: u64) {
        let mut same = self.faults.iter_mut().rev();
        let same = same.find(|fault| fault.kind == FaultKind::Starved && fault.host == host);
        if let Some(before) = same
            && before.until_ms == from_ms
        {
            before.until_ms = until_ms;
            return;
        }
        self.faults.push(Fault {
            at_ms: from_ms,
            until_ms,
            kind: FaultKind::Starved,
            host,
            forgets_ms: 0,
        });
    }

    /// Publish everything, beside the messages that there are, and inject the faults of the plan.
    async fn load(&mut self, before: Vec<Sent>) -> Result<Vec<Sent>> {
        let load = &self.plan.load;
        let scripts = self.scripts().split_off(before.len());
        let (done, mut sent) = mpsc::channel(1_024);
        // Times of the history count from here: hosts have been started before, and say nothing yet.
        let publishing = tokio::spawn(publish(
            self.link(),
            load.kind,
            u32::try_from(before.len())?,
            scripts,
            load.rate,
            self.begun,
            done,
        ));
        let loaded_ms = self.now_ms();
        let mut messages = before;
        let mut actions: VecDeque<Action> = self.plan.actions.iter().copied().collect();
        let mut looked = Instant::now();
        loop {
            let is_over = match tokio::time::timeout(Duration::from_millis(20), sent.recv()).await {
                Ok(Some(more)) => {
                    messages.extend(more);
                    false
                }
                Ok(None) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    true
                }
                Err(_) => false,
            };
            let now = self.now_ms();
            self.remember_size(now);
            self.heal(now).await?;
            while let Some(action) = actions.front().copied()
                && loaded_ms + action.at_ms <= now
                // Hosts that are killed while they start, again and again, handle nothing.
                && (action.kind != FaultKind::KillHost || self.fleet.can_lose_one())
            {
                actions.pop_front();
                self.begin(action).await?;
            }
            if looked.elapsed() >= Duration::from_millis(100) {
                self.look()?;
                self.sample();
                looked = Instant::now();
            }
            // Faults go on as long as there is work for them to meet.
            if is_over && (actions.is_empty() || self.is_empty().await) {
                break;
            }
        }
        publishing.await?;
        self.heal(u64::MAX).await?;
        self.is_aborting = false;
        Ok(messages)
    }

    /// Whether the queue is known to be empty.
    async fn is_empty(&self) -> bool {
        // A server that fails need not answer.
        self.open.is_empty()
            && match RawRedis::open(&self.server.url()).await {
                Ok(raw) => backlog(&raw, self.plan.load.kind).await == Some(0),
                Err(_) => false,
            }
    }

    fn remember_size(&mut self, now: u64) {
        if self.plan.load.persistence == Persistence::None || !self.server.is_running() {
            return;
        }
        if let Ok(bytes) = self.server.append_only_bytes() {
            self.sizes.push_back((now, bytes));
        }
        while self
            .sizes
            .front()
            .is_some_and(|(at, _)| at + KEPT_SIZES_MS < now)
        {
            self.sizes.pop_front();
        }
    }

    /// Heal, drain, harvest, check.
    async fn end(mut self, messages: Vec<Sent>) -> Result<Outcome> {
        let healed_ms = self.now_ms();
        for mut command in std::mem::take(&mut self.commands) {
            drop(command.kill());
            command.wait()?;
        }
        let drained_ms = self.until_empty(healed_ms, messages.len()).await?;
        self.fleet.ask_admin();
        self.is_ending = true;
        while !self.fleet.hosts.is_empty() {
            let now = self.now_ms();
            self.fleet.drain(0, now);
        }
        while self.fleet.is_leaving() {
            self.look()?;
            self.sample();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let forgets = self.faults.iter().any(|fault| fault.forgets());
        let raw = self.server.raw().await;
        let kind = self.plan.load.kind;
        let mut harvest = harvest(&raw, kind, forgets, SECRET).await?;
        if kind == Kind::List && forgets && self.plan.load.persistence != Persistence::None {
            harvest.kept = Some(written(&self.server.dir().join("appendonlydir"))?);
        }
        self.read_server_log(&mut harvest);
        let server = server_name(&raw).await;
        let witness = &mut self.fleet.witness;
        harvest.strangers.append(&mut witness.strangers);
        harvest.leaks.append(&mut witness.leaks);
        harvest.acked = self.fleet.in_peace.then_some(self.fleet.acked);
        if witness.dropped > 0 {
            bail!("a host has dropped lines of its guests: there is no witness");
        }
        let mut events = std::mem::take(&mut witness.events);
        events.sort_by_key(|event| event.at_ms);
        let history = History {
            settings: self.settings(messages.len()),
            messages,
            events,
            faults: self.faults,
            drains: self.fleet.drains,
            exits: self.fleet.exits,
            steps: self.steps,
            samples: self.samples,
            healed_ms,
            drained_ms,
            harvest,
        };
        let judgement = check(&history);
        if !judgement.is_valid() {
            keep_server(self.server.dir(), self.dir.path())?;
        }
        Ok(Outcome {
            judgement,
            history,
            server,
            dir: self.dir,
        })
    }

    fn read_server_log(&self, harvest: &mut Harvest) {
        let log = std::fs::read_to_string(self.server.dir().join("redis.log")).unwrap_or_default();
        if log.contains(SECRET) {
            harvest.leaks.push("the log of the server".to_owned());
        }
    }

    /// Wait until nothing is left to do.
    async fn until_empty(&mut self, healed_ms: u64, messages: usize) -> Result<Option<u64>> {
        let deadline = healed_ms + 4 * drain_queue_ms(&self.plan.load, messages);
        let mut ends = (self.fleet.witness.ends, self.now_ms());
        loop {
            self.look()?;
            self.sample();
            let now = self.now_ms();
            if self.fleet.witness.ends != ends.0 {
                ends = (self.fleet.witness.ends, now);
            }
            let raw = RawRedis::open(&self.server.url()).await;
            let left = match &raw {
                Ok(raw) => backlog(raw, self.plan.load.kind).await,
                Err(_) => None,
            };
            // A queue that keeps nothing is done when nothing comes any more.
            let is_quiet = self.plan.load.kind.at_least_once() || now > ends.1 + 1_500;
            if self.is_replayed()? && left == Some(0) && is_quiet {
                return Ok(Some(now));
            }
            if now > deadline {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn settings(&self, messages: usize) -> Settings {
        let load = &self.plan.load;
        Settings {
            kind: load.kind,
            cap: load.cap,
            concurrency: load.concurrency,
            prefetch: 1_024,
            min_idle_ms: load.min_idle_ms,
            backoff_max_ms: BACKOFF_MAX_MS,
            drain_timeout_ms: DRAIN_MS,
            ordered: load.hosts == 1 && load.concurrency == 1 && !load.mix.fails,
            fresh_instances: load.reuse == 1,
            versions: (0..=VERSIONS).collect::<BTreeSet<u64>>(),
            host_rss_kib: BASE_KIB
                + u64::from(load.concurrency)
                    * match load.mix.fails {
                        true => HANDLER_KIB,
                        false => SMALL_HANDLER_KIB,
                    },
            host_fds: 256,
            slope_kib: 1_024,
            drain_queue_ms: drain_queue_ms(load, messages),
            aborts: load.aborts,
            redis_kib: self.redis_kib(),
            least_rate: u64::from(load.least_rate),
        }
    }

    /// The most memory of the server: in a storm, half more than it had with all messages, before the hosts
    /// started.
    fn redis_kib(&self) -> u64 {
        match (self.plan.load.before, self.samples.first()) {
            (Before::Nothing, _) | (_, None) => u64::MAX,
            (_, Some(first)) => first.redis_kib * 3 / 2 + SERVER_KIB,
        }
    }
}

/// The user of the hosts.
fn user(load: &Load) -> String {
    let name = match (load.least_rights, load.kind) {
        (false, _) => return format!("app on >{SECRET} ~* &* +@all"),
        (true, Kind::Stream) => "hostler-orders",
        (true, _) => "hostler-jobs",
    };
    // The list of the documentation has another name.
    documented_user(name)
        .replace(name, "app")
        .replace("jobs", QUEUE)
        .replace("change-me", SECRET)
}

/// How long a queue of `messages` messages may take to be empty. A busy machine takes up to 10 ms for each, beside
/// what its handlers wait; most have one attempt, some have several.
fn drain_queue_ms(load: &Load, messages: usize) -> u64 {
    let slots = load.hosts as u64 * u64::from(load.concurrency);
    let waits = 2 * u64::from(load.mix.sleep_ms) / slots.max(1);
    EMPTY_MS + messages as u64 * (10 + waits)
}

async fn server_name(raw: &RawRedis) -> String {
    let info = raw.text("INFO server").await;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    match (field("valkey_version:"), field("redis_version:")) {
        (Some(valkey), _) => format!("Valkey {valkey}"),
        (None, Some(redis)) => format!("Redis {redis}"),
        _ => "unknown".to_owned(),
    }
}

/// Copy the log and the data of a server.
fn keep_server(server: &Path, to: &Path) -> Result<()> {
    for dir in [server.to_owned(), server.join("appendonlydir")] {
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            let data = std::fs::metadata(&path)?;
            if data.is_file()
                && data.len() < KEPT_BYTES
                && let Some(name) = path.file_name()
            {
                std::fs::copy(&path, to.join(name))?;
            }
        }
    }
    Ok(())
}

/// See a host refuse this server at its start. What it says.
///
/// # Errors
/// It does not refuse it.
pub async fn refusal(server: &RedisServer) -> Result<String> {
    let ended = HostOptions::new(server).end().await;
    match ended.code() {
        None | Some(0) => bail!("it was not refused: {:?}", ended.status),
        Some(_) => Ok(ended.stderr()),
    }
}

/// Keep what a run has left: its history and its logs.
///
/// # Errors
/// The directory cannot be written.
pub fn keep(outcome: Outcome, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let history = std::fs::File::create(to.join("history.json"))?;
    serde_json::to_writer(std::io::BufWriter::new(history), &outcome.history)?;
    for entry in std::fs::read_dir(outcome.dir.path())? {
        let path = entry?.path();
        if path.is_file()
            && let Some(name) = path.file_name()
        {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
