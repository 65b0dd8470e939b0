//! The faults of a plan: how each begins, and how it is healed.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use hostler::wire::keys::{self, POLICIES};
use hostler_tests::guests::marked;
use hostler_tests::host::binary;
use hostler_tests::redis::RawRedis;

use super::{Open, World};
use crate::harvest::DEAD;
use crate::history::{Fault, FaultKind};
use crate::plan::{Action, Persistence};
use crate::publisher::QUEUE;

/// With `appendfsync everysec`, a server puts off a write to its append-only file while it syncs the file, for up
/// to two seconds, and answers meanwhile: a kill destroys that.
const POSTPONED_MS: u64 = 2_500;
/// Where the policies are kept that a fault has moved away.
const KEPT: &str = "chaos:policies";
/// More rules than a host reads.
const TOO_MANY: usize = 1_001;
/// Versions of the handler that are swapped in.
pub(super) const VERSIONS: u64 = 3;

impl World {
    /// Begin a fault.
    pub(super) async fn begin(&mut self, action: Action) -> Result<()> {
        use FaultKind as F;
        let at_ms = self.now_ms();
        let pick = action.pick;
        let place = match self.fleet.hosts.len() {
            0 => return Ok(()),
            hosts => usize::try_from(pick % hosts as u64).unwrap_or(0),
        };
        let mut host = None;
        let mut forgets_ms = 0;
        match action.kind {
            F::KillHost => {
                host = Some(self.fleet.kill(place)?);
                self.start_host(None, false)?;
            }
            F::StopHost => {
                let number = self.fleet.hosts[place].number;
                self.fleet.stand_still(number, true);
                host = Some(number);
            }
            F::DrainHost | F::OtherSettings => {
                host = Some(self.fleet.drain(place, at_ms));
                let other = (action.kind == F::OtherSettings).then_some(pick);
                self.start_host(other, false)?;
            }
            F::OtherVersion => {
                let is_old = self.fleet.hosts[place].is_old;
                host = Some(self.fleet.drain(place, at_ms));
                self.start_host(None, !is_old && self.programs.old.is_some())?;
            }
            F::KillRedis => {
                self.server.kill();
                if self.plan.load.persistence == Persistence::EverySecond {
                    forgets_ms = POSTPONED_MS;
                }
            }
            F::RestartRedis => {
                let raw = self.server.raw().await;
                // The server ends instead of answering.
                drop(raw.try_ask("SHUTDOWN").await);
                self.server.kill();
            }
            F::PauseRedis => self.server.pause(true),
            F::PowerLoss => {
                forgets_ms = 100 + pick % 1_500;
                let before = at_ms.saturating_sub(forgets_ms);
                let kept = self.sizes.iter().rev().find(|(at, _)| *at <= before);
                let kept = kept.or(self.sizes.front()).map(|(_, bytes)| *bytes);
                let Some(kept) = kept else { return Ok(()) };
                self.server.lose_power(kept)?;
                self.sizes.clear();
                // Sizes are seen every 20 ms, or later on a busy machine.
                forgets_ms += 500;
            }
            F::Failover => match self.fail_over(pick).await? {
                Some(lost) => forgets_ms = lost,
                None => return Ok(()),
            },
            F::Cut => self.proxy.cut(),
            F::CutReply => {
                const NEEDLES: [&str; 6] =
                    ["EVALSHA", "XREADGROUP", "EVALSHA", "XACK", "XADD", "LPUSH"];
                let needle = NEEDLES[usize::try_from(pick % 6).unwrap_or(0)];
                self.proxy.cut_reply(needle, (pick >> 8) % 65);
            }
            F::BlackHole => self.proxy.pause(),
            F::Stall => self.proxy.stall(),
            F::SlowLink => {
                self.proxy
                    .delay(Duration::from_millis(2), Duration::from_millis(3));
                self.proxy.pieces(700);
            }
            F::ClientKill => drop(self.ask("CLIENT KILL TYPE normal SKIPME yes").await),
            F::ScriptFlush => drop(self.ask("SCRIPT FLUSH").await),
            F::OutOfMemory => drop(self.ask("CONFIG SET maxmemory 1").await),
            F::DiskFull => {
                // A snapshot that fails is what makes the server refuse writes: MISCONF.
                let raw = self.server.raw().await;
                let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"save", b"3600 1"];
                raw.try_ask_words(&words).await?;
                raw.try_ask("CONFIG SET dir /proc").await?;
                raw.try_ask("BGSAVE").await?;
            }
            F::ClockJump => {
                // A clock that was ahead and goes back lets delayed messages wait until it is there again: that
                // is documented. So it goes back for a while, or ahead for good.
                let back = match pick % 2 {
                    0 => 1_800 * i64::try_from(1 + pick % 5).unwrap_or(1),
                    _ => {
                        self.ahead_s += 1_800;
                        0
                    }
                };
                if let Some(skewed) = &self.skewed {
                    skewed.set(self.ahead_s - back);
                }
            }
            F::Swap => {
                self.version = 1 + pick % VERSIONS;
                self.put_handler(&self.current_component())?;
            }
            F::BadSwap => {
                let whole = self.current_component();
                self.put_handler(&whole[..whole.len() / 2])?;
            }
            F::Policy => self.policy(pick)?,
            F::HostComes => self.start_host(None, false)?,
            F::Unreadable => self.make_unreadable(pick).await,
            F::HalfWritten => {
                self.version = 1 + pick % VERSIONS;
                let (path, whole) = self.written(pick);
                // In place.
                std::fs::write(path, &whole[..whole.len() / 2])?;
            }
            F::HostDies | F::HostAborts | F::DrainTimeout | F::Starved => return Ok(()),
        }
        self.faults.push(Fault {
            at_ms,
            until_ms: u64::MAX,
            kind: action.kind,
            host,
            forgets_ms,
        });
        self.open.push(Open {
            place: self.faults.len() - 1,
            heal_ms: at_ms + action.for_ms,
            kind: action.kind,
            host,
            pick,
        });
        // A fault that is over at once is healed at once.
        self.heal(self.now_ms()).await
    }

    /// End the faults whose time has come.
    pub(super) async fn heal(&mut self, now: u64) -> Result<()> {
        use FaultKind as F;
        let mut place = 0;
        while let Some(open) = self.open.get(place) {
            let is_instant = matches!(
                open.kind,
                F::KillHost
                    | F::DrainHost
                    | F::OtherSettings
                    | F::OtherVersion
                    | F::Failover
                    | F::Cut
                    | F::ClientKill
                    | F::ScriptFlush
                    | F::Policy
                    | F::HostComes
                    | F::Swap
            );
            if open.heal_ms > now && !is_instant {
                place += 1;
                continue;
            }
            let open = self.open.swap_remove(place);
            match open.kind {
                F::StopHost => {
                    if let Some(host) = open.host {
                        self.fleet.stand_still(host, false);
                    }
                }
                F::KillRedis | F::RestartRedis | F::PowerLoss => self.server.restart(),
                F::PauseRedis => self.server.pause(false),
                F::CutReply => self.proxy.disarm(),
                F::BlackHole => self.proxy.resume(),
                F::Stall => self.proxy.release(),
                F::SlowLink => {
                    self.proxy.delay(Duration::ZERO, Duration::ZERO);
                    self.proxy.pieces(0);
                }
                F::OutOfMemory => drop(self.ask("CONFIG SET maxmemory 0").await),
                F::DiskFull => {
                    let raw = self.server.raw().await;
                    let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"save", b""];
                    raw.try_ask_words(&words).await?;
                    let dir = self.server.dir().display().to_string();
                    raw.try_ask(&format!("CONFIG SET dir {dir}")).await?;
                }
                F::ClockJump => {
                    if let Some(skewed) = &self.skewed {
                        skewed.set(self.ahead_s);
                    }
                }
                F::BadSwap => self.put_handler(&self.current_component())?,
                F::Unreadable => self.make_readable().await?,
                F::HalfWritten => {
                    let (path, whole) = self.written(open.pick);
                    let mut file = OpenOptions::new().append(true).open(path)?;
                    file.write_all(&whole[whole.len() / 2..])?;
                }
                _ => {}
            }
            self.faults[open.place].until_ms = self.now_ms();
        }
        Ok(())
    }

    async fn ask(&self, command: &str) -> Option<redis::Value> {
        let raw = RawRedis::open(&self.server.url()).await.ok()?;
        raw.try_ask(command).await.ok()
    }

    /// The replica takes the place of the server, without the last writes. `None` if it is not in step yet.
    async fn fail_over(&mut self, pick: u64) -> Result<Option<u64>> {
        let Some(replica) = self.replica.take() else {
            return Ok(None);
        };
        let info = replica.raw().await.text("INFO replication").await;
        if !info.contains("master_link_status:up") {
            self.replica = Some(replica);
            return Ok(None);
        }
        let lag = pick % 300;
        replica.pause(true);
        tokio::time::sleep(Duration::from_millis(lag)).await;
        self.server.kill();
        replica.pause(false);
        let raw = replica.raw().await;
        raw.ask("REPLICAOF NO ONE").await;
        self.proxy.lead_to(&replica.socket());
        self.proxy.cut();
        self.server = replica;
        self.replica = Some(self.new_replica());
        Ok(Some(lag + 1_500))
    }

    fn current_component(&self) -> Vec<u8> {
        match usize::try_from(self.version) {
            Ok(version @ 1..) => marked(&self.component, version),
            _ => self.component.clone(),
        }
    }

    fn put_handler(&self, bytes: &[u8]) -> Result<()> {
        let other = self.handler.with_extension("new");
        std::fs::write(&other, bytes)?;
        std::fs::rename(other, &self.handler).context("the handler can be replaced")
    }

    /// The configuration file of the hosts.
    pub(super) fn file(&self) -> PathBuf {
        self.dir.path().join("hosts.toml")
    }

    /// What stands in it. A part of it has no dead-letter queue.
    pub(super) fn rules(&self, first_ms: u64) -> String {
        let cap = self.plan.load.cap;
        format!(
            "max_deliveries = {cap}\n[backoff]\nfirst = \"{first_ms}ms\"\n[dead_letter]\nkey = \"{DEAD}\"\n\
             max_len = 100000000\n"
        )
    }

    /// The same as policies, which no host may miss: without them messages are discarded, and tried for ever.
    pub(super) async fn set_policies(&self) -> Result<()> {
        let cap = self.plan.load.cap.to_string();
        let words: [&[u8]; 6] = [
            b"HSET",
            POLICIES.as_bytes(),
            b"dead_letter.key *",
            DEAD.as_bytes(),
            b"max_deliveries *",
            cap.as_bytes(),
        ];
        self.server.raw().await.try_ask_words(&words).await?;
        Ok(())
    }

    /// The file that a fault writes, and its whole content.
    fn written(&self, pick: u64) -> (PathBuf, Vec<u8>) {
        match (pick >> 8) % 2 {
            0 => (self.handler.clone(), self.current_component()),
            _ => (self.file(), self.rules(1 + pick % 200).into_bytes()),
        }
    }

    /// The server may be away: then nothing happens.
    async fn make_unreadable(&self, pick: u64) {
        let own = keys::policy(QUEUE);
        match pick % 3 {
            0 => {
                self.ask(&format!("RENAME {POLICIES} {KEPT}")).await;
                self.ask(&format!("SET {POLICIES} text")).await;
            }
            1 => {
                let rules: Vec<String> = (0..TOO_MANY)
                    .map(|n| format!("backoff.first q{n}"))
                    .collect();
                let mut words: Vec<&[u8]> = vec![b"HSET", POLICIES.as_bytes()];
                for rule in &rules {
                    words.extend([rule.as_bytes(), b"5ms"]);
                }
                if let Ok(raw) = RawRedis::open(&self.server.url()).await {
                    drop(raw.try_ask_words(&words).await);
                }
            }
            _ => drop(self.ask(&format!("SET {own} text")).await),
        }
    }

    /// Undo all of it.
    async fn make_readable(&self) -> Result<()> {
        let raw = self.server.raw().await;
        raw.try_ask(&format!("DEL {POLICIES} {KEPT} {}", keys::policy(QUEUE)))
            .await?;
        self.set_policies().await
    }

    /// Change a live setting. The command may fail, because the server may be away.
    fn policy(&mut self, pick: u64) -> Result<()> {
        let setting = format!("backoff.first={}ms", 1 + pick % 200);
        let program = self.programs.hostler.clone().unwrap_or_else(binary);
        let child = Command::new(program)
            .env_clear()
            .args(["policy", "set", "--redis", &self.server.url()])
            .args(["--queue", QUEUE, &setting])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.commands.push(child);
        Ok(())
    }
}
