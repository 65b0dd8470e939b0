//! Taking over what instances left that died, and what a lost reply left with this one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::claims::token_of;
use super::token::{TOKEN_LEN, Token};
use super::{BYTES_MAX, ListQueue, millis};
use crate::delivery::message::DeliveryId;
use crate::queue::{Reply, Taken};
use crate::redis::connection::DEADLINE;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{incomplete, word_reply};
use crate::wire::keys;

/// Most deliveries that one script takes over.
const ORPHANS_MAX: usize = 100;
/// How many entries of a processing list one script looks at: more than a host ever holds.
const ENTRIES_MAX: usize = 4096;
/// How many records one script looks at.
const RECORDS_MAX: usize = 1000;
/// How many instances one scan looks at.
const INSTANCES_PER_SCAN: usize = 64;

/// An entry of another processing list that nobody renews.
struct Orphan {
    entry: Bytes,
    /// Starts charged there, as the mark says.
    mark: String,
    idle: Duration,
}

impl ListQueue {
    pub(super) async fn claim_orphans(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        let max = max.min(ORPHANS_MAX);
        if max == 0 {
            return Ok(taken);
        }
        match self.claim_from_all(max, holds, &mut taken).await {
            // What was taken over before is this host's: the next scan meets the error again.
            Err(error) if !taken.claims.is_empty() => {
                tracing::debug!(%error, "a scan for orphans ended early");
                Ok(taken)
            }
            ended => ended.map(|()| taken),
        }
    }

    async fn claim_from_all(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
        taken: &mut Taken,
    ) -> Result<(), Error> {
        // First what a lost reply left here: an error of another instance must not hide it.
        self.adopt_own(max, holds, taken).await?;
        for instance in self.lapsed_instances().await? {
            let room = max - taken.claims.len();
            if room == 0 {
                break;
            }
            let orphans = self.orphans_of(&instance, room, &[]).await?;
            self.take_over(&instance, orphans, taken).await?;
        }
        Ok(())
    }

    /// Instances that may hold orphans: of all hosts with a recovery set, else those of this
    /// host's own base name.
    async fn lapsed_instances(&self) -> Result<Vec<String>, Error> {
        let script = Script::ListLapsed;
        let mut call = self.call(script, &[&self.keys.instances]);
        call.arg(millis(self.options.min_idle))
            .arg(&self.keys.processing_prefix)
            .arg(RECORDS_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let mut names = Vec::new();
        for name in reply::array(script.name(), reply)? {
            let name = reply::text(script.name(), name)?;
            let is_ours = self.options.recovery.is_some() || self.is_of_our_base(&name);
            if name != self.instance && is_ours {
                names.push(name);
            }
        }
        // Every scan begins with another one, so that none waits behind the others for ever.
        if !names.is_empty() {
            let first = self.rotation.fetch_add(1, Ordering::Relaxed) % names.len();
            names.rotate_left(first);
            names.truncate(INSTANCES_PER_SCAN);
        }
        Ok(names)
    }

    /// Whether an earlier start of a host of our name had this one.
    fn is_of_our_base(&self, name: &str) -> bool {
        let base = |name: &str| name.rsplit_once('-').map(|(base, _)| base.to_owned());
        base(name) == base(&self.instance)
    }

    async fn orphans_of(
        &self,
        instance: &str,
        max: usize,
        tokens: &[Token],
    ) -> Result<Vec<Orphan>, Error> {
        let script = Script::ListOrphans;
        let (processing, started) = self.keys_of(instance);
        let mut call = self.call(script, &[&processing, &started, &self.keys.instances]);
        call.arg(instance)
            .arg(millis(self.options.min_idle))
            .arg(max)
            .arg(BYTES_MAX)
            .arg(ENTRIES_MAX);
        for token in tokens {
            call.arg(&token.0[..]);
        }
        let reply = script::run(&self.commands, script, &call).await?;
        let mut orphans = Vec::new();
        for orphan in reply::array(script.name(), reply)? {
            let [entry, mark, idle] = reply::tuple(script.name(), orphan)?;
            let entry = reply::bytes(script.name(), entry)?;
            // Somebody else's key, or somebody has written into ours.
            if entry.len() < TOKEN_LEN {
                tracing::warn!(
                    instance,
                    "an entry of a processing list has no token: left alone"
                );
                continue;
            }
            orphans.push(Orphan {
                entry,
                mark: reply::text(script.name(), mark)?,
                idle: Duration::from_millis(reply::count(script.name(), &idle)?),
            });
        }
        Ok(orphans)
    }

    async fn take_over(
        &self,
        instance: &str,
        orphans: Vec<Orphan>,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let script = Script::ListTake;
        if orphans.is_empty() {
            return Ok(());
        }
        let (processing, started) = self.keys_of(instance);
        let keys = &self.keys;
        let mut call = self.call(
            script,
            &[&processing, &started, &keys.processing, &keys.instances],
        );
        call.arg(instance)
            .arg(&self.instance)
            .arg(millis(self.options.min_idle))
            .arg(self.recovery_ttl());
        let reserved = self.tokens.reserve(orphans.len());
        let mut claims = Vec::new();
        for (offset, orphan) in orphans.into_iter().enumerate() {
            let Some((token, _)) = Token::split(&orphan.entry) else {
                continue;
            };
            let value = orphan.entry.slice(TOKEN_LEN..);
            let written = self
                .values
                .recovered(token, value, orphan.mark.parse().ok())
                .map_err(|error| Error::Reply {
                    command: script.name(),
                    detail: error.to_string(),
                })?;
            let new = reserved.token(offset, written.framed);
            call.arg(&orphan.entry[..])
                .arg(&orphan.mark)
                .arg(new.entry(&written.value));
            claims.push(self.values.claim(new, written.value, Some(orphan.idle)));
        }
        let reply = script::run(&self.commands, script, &call).await?;
        let words = reply::array(script.name(), reply)?;
        if words.len() != claims.len() {
            return Err(incomplete(script.name()));
        }
        for (claim, word) in claims.into_iter().zip(words) {
            if word_reply(script.name(), word)? == Reply::Done {
                taken.claims.push(claim);
            }
        }
        reserved.answered();
        Ok(())
    }

    /// Own deliveries that `holds` does not know: their reply was lost on its way. Only a call
    /// without an answer can leave some.
    async fn adopt_own(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let age = self.options.min_idle / 2;
        let room = max.saturating_sub(taken.claims.len());
        // A server that was paused may carry out a call long after we have given it up.
        if room == 0
            || !self
                .tokens
                .is_in_doubt(4 * self.options.min_idle + 4 * DEADLINE)
        {
            return Ok(());
        }
        let script = Script::ListOwn;
        let mut call = script.on(&[&self.keys.processing]);
        call.arg(ENTRIES_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let mut unknown = Vec::new();
        for token in reply::array(script.name(), reply)? {
            let token = token_of(script.name(), &reply::bytes(script.name(), token)?)?;
            let is_unknown = !holds(&token.id()) && self.tokens.is_settled(token, age);
            if is_unknown && unknown.len() < room {
                unknown.push(token);
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let orphans = self.orphans_of(&self.instance, room, &unknown).await?;
        self.take_over(&self.instance, orphans, taken).await
    }

    fn keys_of(&self, instance: &str) -> (String, String) {
        (
            keys::processing(self.key(), instance),
            keys::started(self.key(), instance),
        )
    }
}
