//! The faults of a plan: how each begins, and how it is healed.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use hostler_tests::guests::marked;
use hostler_tests::host::binary;
use hostler_tests::redis::RawRedis;

use super::{Open, World};
use crate::history::{Fault, FaultKind};
use crate::plan::{Action, Persistence};
use crate::publisher::QUEUE;

/// With `appendfsync everysec`, a server puts off a write to its append-only file while it syncs the file, for up
/// to two seconds, and answers meanwhile: a kill destroys that.
const POSTPONED_MS: u64 = 2_500;
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
        });
        // What is over at once is healed at once.
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
