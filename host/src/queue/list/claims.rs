//! Claiming: new deliveries, orphans of dead instances, and own deliveries after a lost reply.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Value, cmd};

use super::ListQueue;
use super::token::{Form, TOKEN_LEN, Token};
use super::value::named;
use crate::calls::copy;
use crate::calls::words::{incomplete, word_reply};
use crate::delivery::message::DeliveryId;
use crate::delivery::millis::millis;
use crate::queue::at_least_once::AtLeastOnce;
use crate::queue::list::scripts;
use crate::queue::{Claim, Reply, Taken};
use crate::redis::connection::{DEADLINE, Link};
use crate::redis::error::{Class, Error};
use crate::redis::reply;
use crate::redis::script::Script;
use crate::wire::list::Framing;
use crate::wire::{Raw, keys};

/// Most deliveries that one script claims, and most that it takes over. A fetch of more comes in parts: the host
/// takes one in while Redis claims the next one.
pub(super) const CLAIMS_MAX: usize = 256;
pub(super) const ORPHANS_MAX: usize = 100;
/// Between two looks where Redis does not let us wait, or cannot wake us; jittered.
const POLL: Duration = Duration::from_millis(100);
/// How many entries of a processing list one script looks at, the oldest first. A host may hold more: the next scan
/// looks at those, when the oldest are gone.
const ENTRIES_MAX: usize = 4096;
/// How many records one script looks at, and how many instances.
const RECORDS_MAX: usize = 1000;
/// How many instances one scan looks at.
const INSTANCES_PER_SCAN: usize = 64;

/// An entry of a processing list that its instance does not renew.
struct Orphan {
    entry: Bytes,
    /// The starts that the instance recorded, as text; whatever else stands there is no number.
    mark: Bytes,
    idle: Duration,
}

impl ListQueue {
    /// Claim waiting values, or only the oldest ones over a length; and how many more there are.
    pub(super) async fn claim_beyond(
        &self,
        link: &Link,
        want: usize,
        bytes: usize,
        length: Option<u64>,
    ) -> Result<(Vec<Claim>, u64), Error> {
        let script = &scripts::LIST_CLAIM;
        let want = want.min(CLAIMS_MAX);
        let reserved = self.tokens.reserve(want, self.base.time.now_ms());
        let keys = &self.keys;
        let mut call = self.call(
            script,
            &[self.key(), &keys.retry, &keys.processing, &keys.instances],
        );
        call.arg(&self.tokens.prefix(Form::default())[..])
            .arg(&self.tokens.prefix(Form::RETRY)[..])
            .arg(reserved.first())
            .arg(want)
            .arg(bytes)
            .arg(self.recovery_ttl())
            .arg(length.map_or_else(String::new, |length| length.to_string()));
        let sent = Instant::now();
        let reply = self.answer(link.run(script, &call).await)?;
        let [evicted, claims, beyond] = reply::tuple(script.name(), reply)?;
        self.note_eviction(script, &evicted)?;
        let claims = self.claims(script, claims)?;
        self.base.bounds.answered(&claims, sent.elapsed());
        reserved.answered();
        Ok((claims, reply::count(script.name(), &beyond)?))
    }

    /// The answer to a request for messages: after none, the next request is smaller.
    pub(super) fn answer(&self, answer: Result<Value, Error>) -> Result<Value, Error> {
        answer.inspect_err(|error| {
            if error.class() == Class::Reconnect {
                self.base.bounds.failed();
            }
        })
    }

    /// A list has no "wait without taking" but to move its last value to where it is.
    ///
    /// Redis wakes no host for the retry list: a host that puts something there looks itself, the others
    /// look as often as they poll. In a list of other than raw values, only suspects are there.
    pub(super) async fn wait_for_value(&self, left: Duration) -> Result<(), Error> {
        const COMMAND: &str = "BLMOVE";
        let wait = match self.options.framing {
            Framing::Raw => left.min(POLL),
            Framing::Auto | Framing::Frame | Framing::Json => left,
        };
        let pause = left.min(POLL.mul_f64(0.5 + fastrand::f64() / 2.0));
        if !self.may_wait.load(Ordering::Relaxed) {
            tokio::time::sleep(pause).await;
            return Ok(());
        }
        let mut block = cmd(COMMAND);
        block.arg(self.key()).arg(self.key());
        // 0 would mean for ever.
        let seconds = wait.as_secs_f64().max(0.001);
        block.arg("RIGHT").arg("RIGHT").arg(format!("{seconds:.3}"));
        match self.base.fetches.call_waiting(COMMAND, &block, wait).await {
            Ok(_) => Ok(()),
            // The right to it is missing: that does not change by itself.
            Err(error) if error.is_missing_right() => {
                self.may_wait.store(false, Ordering::Relaxed);
                Ok(())
            }
            // It counts as a command that takes memory.
            Err(Error::Unavailable { code, .. })
                if matches!(code.as_str(), "OOM" | "UNBLOCKED") =>
            {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The claims in a script's reply, by their entries: a token and a value.
    pub(super) fn claims(
        &self,
        script: &'static Script,
        value: Value,
    ) -> Result<Vec<Claim>, Error> {
        let command = script.name();
        reply::array(command, value)?
            .into_iter()
            .map(|entry| {
                let entry = reply::bytes(command, entry)?;
                let (token, _) =
                    Token::split(&entry).ok_or_else(|| reply::invalid(command, "no token"))?;
                let value = self.base.bounds.hold(entry.slice(TOKEN_LEN..));
                Ok(self.values.claim(token, value, None))
            })
            .collect()
    }

    pub(super) async fn claim_from(
        &self,
        instances: Vec<String>,
        max: usize,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        for instance in instances {
            let room = max - taken.claims.len();
            if room == 0 {
                break;
            }
            let orphans = self.orphans_of(&instance, room, &[]).await?;
            self.take_over(&instance, orphans, taken).await?;
        }
        Ok(())
    }

    /// Instances that may hold orphans, whatever their name: a bounded part of them in each call.
    pub(super) async fn lapsed_instances(&self) -> Result<Vec<String>, Error> {
        let script = &scripts::LIST_LAPSED;
        let mut call = self.keyed(script, &[&self.keys.instances, self.base.terms.key()]);
        call.arg(millis(self.options.min_idle))
            .arg(&self.keys.processing_prefix)
            .arg(RECORDS_MAX)
            .arg(self.passed_over.load(Ordering::Relaxed));
        let reply = self.base.commands.run(script, &call).await?;
        let [found, next] = reply::tuple(script.name(), reply)?;
        self.passed_over
            .store(reply::count(script.name(), &next)?, Ordering::Relaxed);
        let mut names = Vec::new();
        for name in reply::array(script.name(), found)? {
            let name = reply::text(script.name(), name)?;
            if name != self.instance() {
                names.push(name);
            }
        }
        self.base.rotate(&mut names);
        names.truncate(INSTANCES_PER_SCAN);
        Ok(names)
    }

    async fn orphans_of(
        &self,
        instance: &str,
        max: usize,
        tokens: &[Token],
    ) -> Result<Vec<Orphan>, Error> {
        let script = &scripts::LIST_ORPHANS;
        let Some(bytes) = self.base.bounds.for_old() else {
            return Ok(Vec::new());
        };
        let (processing, started) = self.keys_of(instance);
        let terms = self.base.terms.key();
        let keys = [&processing, &started, &self.keys.instances, terms];
        let mut call = self.keyed(script, &keys);
        call.arg(instance)
            .arg(millis(self.options.min_idle))
            .arg(max)
            .arg(bytes)
            .arg(ENTRIES_MAX);
        for token in tokens {
            call.arg(&token.0[..]);
        }
        let reply = self.answer(self.base.commands.run(script, &call).await)?;
        let mut orphans = Vec::new();
        for orphan in reply::array(script.name(), reply)? {
            let [entry, mark, idle] = reply::tuple(script.name(), orphan)?;
            let entry = self.base.bounds.hold(reply::bytes(script.name(), entry)?);
            if entry.len() < TOKEN_LEN {
                // It is the key of another program, or another program has written into it.
                tracing::warn!(
                    instance,
                    "an entry of a processing list has no token: left alone"
                );
                continue;
            }
            orphans.push(Orphan {
                entry,
                mark: reply::bytes(script.name(), mark)?,
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
        let script = &scripts::LIST_TAKE;
        if orphans.is_empty() {
            return Ok(());
        }
        let (processing, started) = self.keys_of(instance);
        let keys = &self.keys;
        let terms = self.base.terms.key();
        let keys: [&str; 6] = [
            &processing,
            &started,
            &keys.processing,
            &keys.instances,
            terms,
            &keys.written,
        ];
        let mut call = self.keyed(script, &keys);
        call.arg(instance)
            .arg(self.instance())
            .arg(millis(self.options.min_idle))
            .arg(self.recovery_ttl());
        let reserved = self.tokens.reserve(orphans.len(), self.base.time.now_ms());
        let mut claims = Vec::new();
        for (offset, orphan) in orphans.into_iter().enumerate() {
            let Some((token, _)) = Token::split(&orphan.entry) else {
                continue;
            };
            let value = orphan.entry.slice(TOKEN_LEN..);
            let mark = std::str::from_utf8(&orphan.mark).ok();
            let recorded = mark.and_then(|mark| mark.parse().ok());
            let written = self.values.recovered(token, value.clone(), recorded);
            let written = written.unwrap_or_else(|error| {
                // One bad value holds up none of the others. It goes on as it stands.
                let instance = instance.to_owned();
                tracing::warn!(%error, %token, instance, "no count can be written into a value");
                self.values.as_it_stands(token, value.clone())
            });
            let new = reserved.token(offset, written.form);
            call.arg(named(token, &value)).arg(&orphan.mark[..]);
            let original = Raw::Value(value);
            copy::push_value(&new.entry(&written.value), Some(&original), &mut call);
            claims.push(self.values.claim(new, written.value, Some(orphan.idle)));
        }
        let reply = self.base.commands.run(script, &call).await?;
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

    /// Claim own deliveries that `holds` does not know: their reply was lost, or this host let go of them. Nothing else can
    /// leave some.
    pub(super) async fn adopt_own(
        &self,
        max: usize,
        holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
        taken: &mut Taken,
    ) -> Result<(), Error> {
        let age = self.options.min_idle / 2;
        let room = max.saturating_sub(taken.claims.len());
        if room == 0 || !self.tokens.is_in_doubt() {
            return Ok(());
        }
        let looked = Instant::now();
        let script = &scripts::LIST_OWN;
        let mut call = script.on(&[&self.keys.processing]);
        call.arg(ENTRIES_MAX);
        let reply = self.base.commands.run(script, &call).await?;
        let mut unknown = Vec::new();
        let own = reply::array(script.name(), reply)?;
        let is_whole = own.len() < ENTRIES_MAX;
        for token in own {
            let token = token_of(script.name(), token)?;
            let is_unknown = !holds(&token.id()) && self.tokens.is_settled(token, age);
            if is_unknown && unknown.len() < room {
                unknown.push(token);
            }
        }
        if is_whole && unknown.is_empty() {
            // A server that was paused may carry out a call long after we have given it up.
            let doubt = 4 * self.options.min_idle + 4 * DEADLINE;
            self.tokens.settle_doubt(looked, doubt);
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let orphans = self.orphans_of(self.instance(), room, &unknown).await?;
        self.take_over(self.instance(), orphans, taken).await
    }

    fn keys_of(&self, instance: &str) -> (String, String) {
        let key = self.key();
        (
            keys::processing(key, instance),
            keys::started(key, instance),
        )
    }
}

fn token_of(command: &'static str, value: Value) -> Result<Token, Error> {
    match Token::split(&reply::bytes(command, value)?) {
        Some((token, [])) => Ok(token),
        _ => Err(reply::invalid(command, "an invalid token")),
    }
}
