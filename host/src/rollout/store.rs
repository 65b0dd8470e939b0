//! The versions of a handler that are stored beside its queue: for every host that accepts deploys.
//!
//! | key | what it holds |
//! |---|---|
//! | `{orders}:versions` | a hash: which version is wanted, since when, by whom; what each one is |
//! | `{orders}:version:N` | the bytes of version N |
//! | `{orders}:version:N:kept`, `:given-up` | what a host has found out about it ([`Verdicts`]) |
//! | `{orders}:upload:TOKEN` | a component on its way; it lapses by itself |
//! | `{orders}:hosts`, `{orders}:host:NAME` | what each host looks like: it lapses as well |
//!
//! A component is uploaded in chunks beside its place, read back and compared; one script then
//! gives it a number, moves it there and wants it. So no host ever sees a part of one.
//!
//! Crash windows: who dies while uploading leaves a key that lapses; who dies between the script
//! and its reply has deployed, and may ask again with the same token. A Redis that loses what was
//! uploaded (no persistence, a failover) makes the script find another length, or none. A host
//! checks the digest of what it fetched, whatever is stored.

use std::time::Duration;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::wire::keys;

mod verdicts;

pub use verdicts::Verdicts;

/// Bytes that are sent or fetched at once.
const CHUNK: usize = 1 << 20;
/// For how long an upload is kept that nobody continues.
const UPLOAD_TTL: Duration = Duration::from_secs(10 * 60);
/// How many versions are kept: the newest, what is wanted, and what was wanted before.
pub const KEPT: usize = 10;
/// How many hosts are looked at.
const HOSTS_MAX: isize = 1_000;
/// For how long the names of hosts are kept.
const NAMES_KEPT: Duration = Duration::from_secs(60);
/// Bytes of a name of who deployed.
const WHO_MAX: usize = 128;

const COMMAND: &str = "versions";

/// The versions of one queue.
pub struct Store {
    link: Link,
    key: String,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// What is wanted of the hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Tells this request from every other, also from those of a Redis that has lost its data since.
    pub token: String,
    /// The version; 0 = none that is stored.
    pub number: u64,
    /// How it came to be wanted.
    pub action: Action,
    /// For how long it has been wanted.
    pub age: Duration,
}

/// How a version came to be wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// It is new.
    Deploy,
    /// Back to it.
    RollBack,
    /// It was a canary, and is kept.
    Promote,
}

/// A version that is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Its number.
    pub number: u64,
    /// Its digest.
    pub digest: String,
    /// Bytes of the component.
    pub size: u64,
    /// When it was deployed, in epoch milliseconds.
    pub at_ms: u64,
    /// By whom.
    pub by: String,
}

/// All that is stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The version that is wanted; 0 = none that is stored.
    pub wanted: u64,
    /// What a rollback goes back to; 0 = what each host ran before.
    pub before: u64,
    /// What is stored, the newest first.
    pub stored: Vec<Stored>,
}

/// What a deploy or a request came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Done {
    /// This version is wanted now.
    Wanted(u64),
    /// Nothing was ever deployed to this queue.
    Nothing,
    /// What was uploaded, or what was to go back to, is not there (any more).
    Gone,
}

/// What became of fetching a version.
#[derive(Debug)]
pub enum Fetched {
    /// All of it.
    Component(Vec<u8>),
    /// None of it, as it is larger than wanted; in words.
    TooLarge(String),
    /// It is not what was stored, and how.
    Damaged(String),
}

impl Store {
    /// The versions of the queue with this key.
    pub fn new(link: Link, key: &str) -> Self {
        Self {
            link,
            key: key.to_owned(),
        }
    }

    /// Store a component, and want it. `token` tells this deploy from every other.
    ///
    /// # Errors
    /// What Redis refuses. The same deploy may be tried again.
    pub async fn deploy(&self, token: &str, component: &[u8], by: &str) -> Result<Done, Error> {
        let upload = keys::upload(&self.key, token);
        if !self.is_done(token).await? {
            self.upload(&upload, component).await?;
            let length = component.len() as u64;
            let stored = self.hash(&upload, length).await?;
            if stored != Some(Sha256::digest(component).into()) {
                return Ok(Done::Gone);
            }
        }
        let mut call = Script::Deploy.on(&[&keys::versions(&self.key), &upload]);
        call.arg(token)
            .arg(component.len())
            .arg(hex(&Sha256::digest(component).into()))
            .arg(who(by))
            .arg(keys::version(&self.key, ""))
            .arg(KEPT);
        done(
            Script::Deploy,
            script::run(&self.link, Script::Deploy, &call).await?,
        )
    }

    /// Go back to the version before, or to this one.
    ///
    /// # Errors
    /// As [`Store::deploy`].
    pub async fn roll_back(&self, token: &str, by: &str, to: Option<u64>) -> Result<Done, Error> {
        let to = to.map_or(String::new(), |number| number.to_string());
        self.request(token, "rollback", by, &to).await
    }

    /// Keep the canary.
    ///
    /// # Errors
    /// As [`Store::deploy`].
    pub async fn promote(&self, token: &str, by: &str) -> Result<Done, Error> {
        self.request(token, "promote", by, "").await
    }

    async fn request(&self, token: &str, action: &str, by: &str, to: &str) -> Result<Done, Error> {
        let mut call = Script::RequestVersion.on(&[&keys::versions(&self.key)]);
        call.arg(token).arg(action).arg(who(by)).arg(to);
        done(
            Script::RequestVersion,
            script::run(&self.link, Script::RequestVersion, &call).await?,
        )
    }

    /// What is wanted now; `None` = nothing was ever deployed.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn wanted(&self) -> Result<Option<Wanted>, Error> {
        let mut pipeline = redis::Pipeline::new();
        let fields = ["token", "wanted", "action", "at"];
        pipeline
            .cmd("HMGET")
            .arg(keys::versions(&self.key))
            .arg(&fields);
        pipeline.cmd("TIME");
        let replies = Value::Array(self.link.pipeline(COMMAND, &pipeline).await?);
        let [found, time] = reply::tuple(COMMAND, replies)?;
        let [token, number, action, at] = reply::tuple(COMMAND, reply::accepted(COMMAND, found)?)?;
        if token == Value::Nil {
            return Ok(None);
        }
        let [seconds, _] = reply::tuple(COMMAND, reply::accepted(COMMAND, time)?)?;
        let now_ms = reply::count(COMMAND, &seconds)?.saturating_mul(1_000);
        let at_ms = reply::count(COMMAND, &at)?;
        Ok(Some(Wanted {
            token: reply::text(COMMAND, token)?,
            number: reply::count(COMMAND, &number)?,
            action: match &*reply::text(COMMAND, action)? {
                "rollback" => Action::RollBack,
                "promote" => Action::Promote,
                _ => Action::Deploy,
            },
            age: Duration::from_millis(now_ms.saturating_sub(at_ms)),
        }))
    }

    /// What this version is; `None` = it is not stored.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn stored(&self, number: u64) -> Result<Option<Stored>, Error> {
        let mut cmd = Cmd::new();
        cmd.arg("HGET")
            .arg(keys::versions(&self.key))
            .arg(format!("v:{number}"));
        match self.link.call(COMMAND, &cmd).await? {
            Value::Nil => Ok(None),
            found => Ok(parse(number, &reply::text(COMMAND, found)?)),
        }
    }

    /// Fetch a version, of at most `max` bytes, and check its digest.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn fetch(&self, stored: &Stored, max: u64) -> Result<Fetched, Error> {
        if stored.size > max {
            let what = format!("is {} bytes, more than the limit of {max}", stored.size);
            return Ok(Fetched::TooLarge(what));
        }
        let key = keys::version(&self.key, &stored.number.to_string());
        let mut bytes = Vec::new();
        loop {
            let chunk = self.chunk(&key, bytes.len() as u64).await?;
            if chunk.is_empty() {
                break;
            }
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > stored.size {
                break;
            }
        }
        if bytes.len() as u64 != stored.size || hex(&Sha256::digest(&bytes).into()) != stored.digest
        {
            let what = format!(
                "is damaged: {} bytes are stored that do not have its digest",
                bytes.len()
            );
            return Ok(Fetched::Damaged(what));
        }
        Ok(Fetched::Component(bytes))
    }

    /// All that is stored.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn report(&self) -> Result<Report, Error> {
        let mut cmd = Cmd::new();
        cmd.arg("HGETALL").arg(keys::versions(&self.key));
        let mut report = Report::default();
        for (field, value) in reply::pairs(COMMAND, self.link.call(COMMAND, &cmd).await?)? {
            let field = reply::text(COMMAND, field)?;
            match &*field {
                "wanted" => report.wanted = reply::count(COMMAND, &value)?,
                "before" => report.before = reply::count(COMMAND, &value)?,
                field => {
                    let number = field.strip_prefix("v:").and_then(|n| n.parse().ok());
                    if let Some(number) = number {
                        let text = reply::text(COMMAND, value)?;
                        report.stored.extend(parse(number, &text));
                    }
                }
            }
        }
        report
            .stored
            .sort_by_key(|stored| std::cmp::Reverse(stored.number));
        Ok(report)
    }

    /// Say what this host looks like; `None` = it leaves. Holds for `ttl`.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn show(&self, name: &str, seen: Option<&str>, ttl: Duration) -> Result<(), Error> {
        let (hosts, host) = (keys::hosts(&self.key), keys::host(&self.key, name));
        let mut call = Script::Seen.on(&[&hosts, &host]);
        call.arg(name)
            .arg(seen.unwrap_or_default())
            .arg(ttl.as_millis().to_string())
            .arg(NAMES_KEPT.as_millis().to_string());
        script::run(&self.link, Script::Seen, &call).await.map(drop)
    }

    /// What the hosts of the queue look like, in their own words.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn hosts(&self) -> Result<Vec<String>, Error> {
        let mut cmd = Cmd::new();
        cmd.arg("ZRANGE")
            .arg(keys::hosts(&self.key))
            .arg(0)
            .arg(HOSTS_MAX - 1);
        let names = reply::array(COMMAND, self.link.call(COMMAND, &cmd).await?)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut cmd = Cmd::new();
        cmd.arg("MGET");
        for name in names {
            cmd.arg(keys::host(&self.key, &reply::text(COMMAND, name)?));
        }
        let found = reply::array(COMMAND, self.link.call(COMMAND, &cmd).await?)?;
        let lapsed = |value: &Value| *value != Value::Nil;
        found
            .into_iter()
            .filter(lapsed)
            .map(|value| reply::text(COMMAND, value))
            .collect()
    }

    /// Whether this deploy was carried out already, and its reply was lost.
    async fn is_done(&self, token: &str) -> Result<bool, Error> {
        let mut cmd = Cmd::new();
        cmd.arg("HGET").arg(keys::versions(&self.key)).arg("token");
        let found = self.link.call(COMMAND, &cmd).await?;
        Ok(found != Value::Nil && reply::text(COMMAND, found)? == token)
    }

    async fn upload(&self, key: &str, component: &[u8]) -> Result<(), Error> {
        let mut at = 0;
        for chunk in component.chunks(CHUNK) {
            // At its place, whatever an earlier try has written.
            let mut pipeline = redis::Pipeline::new();
            pipeline.cmd("SETRANGE").arg(key).arg(at).arg(chunk);
            pipeline
                .cmd("PEXPIRE")
                .arg(key)
                .arg(UPLOAD_TTL.as_millis().to_string());
            for reply in self.link.pipeline("SETRANGE", &pipeline).await? {
                reply::accepted("SETRANGE", reply)?;
            }
            at += chunk.len();
        }
        Ok(())
    }

    /// The digest of what stands there, if it has this length.
    async fn hash(&self, key: &str, length: u64) -> Result<Option<[u8; 32]>, Error> {
        let mut state = Sha256::new();
        let mut at = 0;
        while at <= length {
            let chunk = self.chunk(key, at).await?;
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            state.update(&chunk);
        }
        Ok((at == length).then(|| state.finalize().into()))
    }

    async fn chunk(&self, key: &str, at: u64) -> Result<bytes::Bytes, Error> {
        let mut cmd = Cmd::new();
        cmd.arg("GETRANGE")
            .arg(key)
            .arg(at)
            .arg(at + CHUNK as u64 - 1);
        reply::bytes("GETRANGE", self.link.call("GETRANGE", &cmd).await?)
    }
}

fn done(script: Script, value: Value) -> Result<Done, Error> {
    match value {
        Value::Int(number) => Ok(Done::Wanted(u64::try_from(number).unwrap_or(0))),
        other => match &*reply::text(script.name(), other)? {
            "gone" => Ok(Done::Gone),
            "nothing" => Ok(Done::Nothing),
            _ => Err(Error::Reply {
                command: script.name(),
                detail: "a word that we do not know".to_owned(),
            }),
        },
    }
}

/// `DIGEST SIZE AT WHO`, as `deploy.lua` writes it.
fn parse(number: u64, text: &str) -> Option<Stored> {
    let mut words = text.splitn(4, ' ');
    Some(Stored {
        number,
        digest: words.next()?.to_owned(),
        size: words.next()?.parse().ok()?,
        at_ms: words.next()?.parse().ok()?,
        by: words.next()?.to_owned(),
    })
}

fn hex(digest: &[u8; 32]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A name on one line.
fn who(by: &str) -> String {
    crate::redis::error::bounded_to(by, WHO_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let text = "sha256:00 12 1700000000000 ann at build 7";
        let stored = parse(3, text).unwrap();
        assert_eq!(stored.by, "ann at build 7");
        assert_eq!((stored.number, stored.size), (3, 12));
        for bad in ["", "sha256:00 12", "sha256:00 x 1 ann"] {
            assert_eq!(parse(1, bad), None, "{bad}");
        }
    }
}
