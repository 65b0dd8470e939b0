//! Claiming: what is new, what is due.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::{Cmd, Value};

use super::token::Token;
use super::{BYTES_MAX, CLAIMS_MAX, ListQueue};
use crate::queue::{Claim, Taken};
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::wire::list::Framing;

/// Between two looks where Redis does not let us wait, or cannot wake us; jittered.
const POLL: Duration = Duration::from_millis(100);

impl ListQueue {
    pub(super) async fn read_new(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        if want == 0 {
            return Ok(Vec::new());
        }
        let _fetching = self.interruption.begin();
        let until = Instant::now() + wait;
        loop {
            let claims = self.claim_new(want).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !claims.is_empty() || left.is_zero() || self.interruption.is_wanted() {
                return Ok(claims);
            }
            self.wait_for_value(left).await?;
        }
    }

    async fn claim_new(&self, want: usize) -> Result<Vec<Claim>, Error> {
        let claimed = self.claim_beyond(&self.fetches, want, None).await?;
        Ok(claimed.0)
    }

    /// Claim what waits, or only the oldest values beyond a length; and how many more there are.
    pub(super) async fn claim_beyond(
        &self,
        link: &Link,
        want: usize,
        length: Option<u64>,
    ) -> Result<(Vec<Claim>, u64), Error> {
        let script = Script::ListClaim;
        let want = want.min(CLAIMS_MAX);
        let reserved = self.tokens.reserve(want);
        let keys = &self.keys;
        let mut call = self.call(
            script,
            &[self.key(), &keys.retry, &keys.processing, &keys.instances],
        );
        call.arg(&self.instance)
            .arg(&self.tokens.prefix(false)[..])
            .arg(&self.tokens.prefix(true)[..])
            .arg(reserved.first())
            .arg(want)
            .arg(BYTES_MAX)
            .arg(self.recovery_ttl())
            .arg(length.map_or_else(String::new, |length| length.to_string()));
        let reply = script::run(link, script, &call).await?;
        let [unknown, claims, beyond] = reply::tuple(script.name(), reply)?;
        self.heed(reply::integer(script.name(), &unknown)?);
        let claims = self.claims(script, claims)?;
        reserved.answered();
        Ok((claims, reply::count(script.name(), &beyond)?))
    }

    /// A list has no "wait without taking" but to move its last value to where it is.
    ///
    /// Nobody is woken for the retry list of raw values: a host that puts something there looks
    /// itself, the others look as often as they poll.
    async fn wait_for_value(&self, left: Duration) -> Result<(), Error> {
        const COMMAND: &str = "BLMOVE";
        let wait = match self.options.framing {
            Framing::Raw => left.min(POLL),
            Framing::Auto | Framing::Frame | Framing::Json => left,
        };
        if !self.may_wait.load(Ordering::Relaxed) {
            tokio::time::sleep(left.min(jittered(POLL))).await;
            return Ok(());
        }
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND).arg(self.key()).arg(self.key());
        // 0 would mean for ever.
        let seconds = wait.as_secs_f64().max(0.001);
        cmd.arg("RIGHT").arg("RIGHT").arg(format!("{seconds:.3}"));
        match self.fetches.call_waiting(COMMAND, &cmd, wait).await {
            Ok(_) => Ok(()),
            // No right to it: that does not change by itself.
            Err(Error::Configuration { code, .. }) if code == "NOPERM" => {
                self.may_wait.store(false, Ordering::Relaxed);
                Ok(())
            }
            // It counts as a command that takes memory.
            Err(Error::Unavailable { code, .. })
                if matches!(code.as_str(), "OOM" | "UNBLOCKED") =>
            {
                tokio::time::sleep(left.min(jittered(POLL))).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn claim_due(&self, max: usize) -> Result<Taken, Error> {
        let script = Script::ListDue;
        let max = max.min(CLAIMS_MAX);
        let reserved = self.tokens.reserve(max);
        let keys = &self.keys;
        let mut call = self.call(script, &[&keys.delayed, &keys.processing, &keys.instances]);
        // What waits for its time carries its count: it is framed.
        let framed = self.options.framing == Framing::Raw;
        call.arg(&self.instance)
            .arg(&self.tokens.prefix(framed)[..])
            .arg(reserved.first())
            .arg(max)
            .arg(BYTES_MAX)
            .arg(self.recovery_ttl());
        let reply = script::run(&self.commands, script, &call).await?;
        let [unknown, claims, wait] = reply::tuple(script.name(), reply)?;
        self.heed(reply::integer(script.name(), &unknown)?);
        let wait = reply::integer(script.name(), &wait)?;
        let claims = self.claims(script, claims)?;
        reserved.answered();
        Ok(Taken {
            claims,
            trimmed: 0,
            next_due: u64::try_from(wait).ok().map(Duration::from_millis),
        })
    }

    /// The claims in a script's reply: `{ token, value }` each.
    fn claims(&self, script: Script, value: Value) -> Result<Vec<Claim>, Error> {
        let command = script.name();
        reply::array(command, value)?
            .into_iter()
            .map(|claim| {
                let [token, value] = reply::tuple(command, claim)?;
                let token = token_of(command, &reply::bytes(command, token)?)?;
                Ok(self
                    .values
                    .claim(token, reply::bytes(command, value)?, None))
            })
            .collect()
    }
}

/// The token that these bytes are.
pub(super) fn token_of(command: &'static str, bytes: &Bytes) -> Result<Token, Error> {
    match Token::split(bytes) {
        Some((token, [])) => Ok(token),
        _ => Err(Error::Reply {
            command,
            detail: "a token that is not one".to_owned(),
        }),
    }
}

fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.5 + fastrand::f64() / 2.0)
}
