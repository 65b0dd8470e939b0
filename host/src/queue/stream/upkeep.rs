//! What a group needs beside its deliveries: joining, retention, leaving, repair.

use std::sync::Arc;

use redis::Cmd;

use super::{GroupStart, PARKED_CONSUMER, Retention, StreamQueue, words};
use crate::delivery::message::DeliveryId;
use crate::queue::{Backlog, Claim, Maintenance, Repair, Repaired, Reply};
use crate::redis::connection::PROBE_DEADLINE;
use crate::redis::error::Error;
use crate::redis::reply::{self, Info};
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{unless_forbidden, word_reply};
use crate::wire::entry_id::{entry_id, parse_entry_id};

/// For how long a consumer must not have been seen before it is removed.
const CONSUMER_IDLE_MS: u64 = 60 * 60 * 1000;
/// Most consumers removed in one go.
const CONSUMERS_MAX: usize = 100;
/// Most entries trimmed in one go.
const TRIM_MAX: u64 = 10_000;
/// Most parked deliveries held again in the script that makes a group again.
const PARKED_AGAIN_MAX: usize = 10_000;
/// Most deliveries held again by one script.
const HELD_AGAIN_PER_CALL: usize = 100;

impl StreamQueue {
    /// Make the group if it does not exist. Returns the last id that it has handed out.
    pub(super) async fn join(&self) -> Result<DeliveryId, Error> {
        const CREATE: &str = "XGROUP CREATE";
        // Made only where it is missing: a server without memory refuses to make what is there.
        if let Some(last) = self.last_handed_out().await? {
            return Ok(last);
        }
        let mut cmd = words(CREATE);
        cmd.arg(self.key())
            .arg(self.group())
            .arg(match self.options.start {
                GroupStart::Beginning => "0",
                GroupStart::End => "$",
            })
            .arg("MKSTREAM");
        match self.commands.call(CREATE, &cmd).await {
            Ok(_) => {}
            Err(Error::Configuration { code, .. }) if code == "BUSYGROUP" => {}
            Err(error) => return Err(error),
        }
        Ok(self.last_handed_out().await?.unwrap_or(DeliveryId(0)))
    }

    /// The last id that the group has handed out, if there is a group.
    async fn last_handed_out(&self) -> Result<Option<DeliveryId>, Error> {
        const GROUPS: &str = "XINFO GROUPS";
        let mut cmd = words(GROUPS);
        cmd.arg(self.key());
        let groups = match self.commands.call(GROUPS, &cmd).await {
            Ok(groups) => groups,
            Err(error) => match self.about(error) {
                Error::Missing { .. } => return Ok(None),
                error => return Err(error),
            },
        };
        for info in reply::array(GROUPS, groups)? {
            let mut info = Info::new(GROUPS, info)?;
            if reply::bytes(GROUPS, info.take("name"))? == self.group() {
                let last = info.text("last-delivered-id")?;
                return Ok(parse_entry_id(&last).map(|(id, _)| id));
            }
        }
        Ok(None)
    }

    pub(super) async fn keep_house(&self) -> Result<Maintenance, Error> {
        let mut done = self.counts.take();
        let kept = self.keep_house_into(&mut done).await;
        kept.inspect_err(|_| self.counts.give_back(&done))?;
        Ok(done)
    }

    async fn keep_house_into(&self, done: &mut Maintenance) -> Result<(), Error> {
        self.time.read(&self.commands).await?;
        self.shorten(done).await?;
        let retention = match self.options.retention {
            Retention::Keep => None,
            Retention::Acked => Some((Script::RetainAcked, 0)),
            Retention::MaxLen(length) => Some((Script::RetainMaxlen, length)),
        };
        if let Some((script, length)) = retention {
            let mut call = script.on(&[self.key()]);
            call.arg(TRIM_MAX).arg(length);
            let reply = script::run(&self.commands, script, &call).await?;
            let [trimmed, held] = reply::tuple(script.name(), reply)?;
            done.trimmed = reply::count(script.name(), &trimmed)?;
            done.held_back = reply::integer(script.name(), &held)? == 1;
        }
        let script = Script::Consumers;
        let mut call = script.on(&[self.key(), &self.fences]);
        call.arg(self.group())
            .arg(CONSUMER_IDLE_MS)
            .arg(CONSUMERS_MAX)
            .arg("")
            .arg(&self.consumer)
            .arg(PARKED_CONSUMER);
        let removed = script::run(&self.commands, script, &call).await?;
        done.consumers_removed = reply::count(script.name(), &removed)?;
        Ok(())
    }

    pub(super) async fn make_again(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        let script = Script::Repair;
        let seen = self.cursors().seen;
        let mut call = script.on(&[self.key(), &self.parked]);
        call.arg(self.group())
            .arg(PARKED_CONSUMER)
            .arg(entry_id(seen))
            .arg(PARKED_AGAIN_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let repaired = match reply::text(script.name(), reply)?.as_str() {
            "intact" => Repaired::Intact,
            "group" => Repaired::Group,
            _ => Repaired::Stream,
        };
        if matches!(repaired, Repaired::Stream) {
            // What this host still holds went with the stream.
            let held = vec![Reply::Trimmed; held.len()];
            return Ok(Repair { repaired, held });
        }
        // Another host may have made the group again: hold what we hold there as well.
        let script = Script::Readopt;
        let calls = held
            .chunks(HELD_AGAIN_PER_CALL)
            .map(|held| {
                let mut call = script.on(&[self.key()]);
                call.arg(self.group()).arg(&self.consumer);
                for (claim, count) in held {
                    call.arg(entry_id(claim.id)).arg(*count);
                }
                call
            })
            .collect();
        let mut replies = Vec::with_capacity(held.len());
        for reply in script::run_all(&self.commands, script, calls).await? {
            let words = reply::accepted(script.name(), reply)?;
            for word in reply::array(script.name(), words)? {
                replies.push(word_reply(script.name(), word)?);
            }
        }
        Ok(Repair {
            repaired,
            held: replies,
        })
    }

    pub(super) async fn look_whether_it_works(&self) -> Result<(), Error> {
        const COMMAND: &str = "XACK";
        let mut cmd = Cmd::new();
        // Nothing has this id: it acknowledges nothing. But it is a write, which a replica, a
        // server that cannot save, or one without its replicas refuses.
        cmd.arg(COMMAND)
            .arg(self.key())
            .arg(self.group())
            .arg("0-0");
        let looking = async {
            let written = self.commands.call(COMMAND, &cmd).await.map(drop);
            unless_forbidden(written)?;
            unless_forbidden(self.look_at_backlog().await.map(drop))
        };
        self.commands.within(COMMAND, PROBE_DEADLINE, looking).await
    }

    pub(super) async fn look_at_backlog(&self) -> Result<Backlog, Error> {
        let script = Script::Backlog;
        let mut call = script.on(&[self.key(), &self.delayed]);
        call.arg(self.group());
        let reply = script::run(&self.commands, script, &call).await?;
        let [unread, pending, delayed] = reply::tuple(script.name(), reply)?;
        let unread = reply::integer(script.name(), &unread)?;
        if unread < 0 {
            return Err(Error::Missing {
                key: self.key().to_owned(),
                group: self.group().to_owned(),
            });
        }
        Ok(Backlog {
            unread: unread > 0,
            pending: reply::count(script.name(), &pending)?
                + reply::count(script.name(), &delayed)?,
        })
    }

    pub(super) async fn remove_self(&self) -> Result<(), Error> {
        let script = Script::Consumers;
        let mut call = script.on(&[self.key(), &self.fences]);
        call.arg(self.group()).arg(0).arg(1).arg(&self.consumer);
        script::run(&self.commands, script, &call).await.map(|_| ())
    }
}
