//! The versions of a handler that are stored beside its queue, for all hosts that accept deploys.
//!
//! | key | content |
//! |---|---|
//! | `{orders}:versions` | a hash: the requested version, its time and author; each stored version |
//! | `{orders}:version:N` | the bytes of version N |
//! | `{orders}:version:N:kept`, `:given-up` | verdicts of hosts ([`Verdicts`]) |
//! | `{orders}:version:kept` | the version that a host kept last, or that an operator chose since |
//! | `{orders}:upload:TOKEN` | a component during its upload; the key expires |
//! | `{orders}:hosts`, `{orders}:host:NAME` | the state of each host; the keys expire |
//!
//! A component is uploaded in chunks to a key of its own, read back and compared. Then one script
//! numbers it, moves it to its key and requests it. So no host sees a part of a component.
//!
//! Crash windows: a crash during the upload leaves a key that expires. After a crash between the script
//! and its reply, the version is deployed, and the same deploy may be repeated with its token. If Redis
//! loses the upload (no persistence, a failover), the script finds another length or no key. A host
//! checks the digest of each component that it fetches.
//!
//! A host records its verdict about a stored version. Other hosts need not follow it: it decides
//! how a host starts, where no other host runs. A verdict contains the digest of the version, because a
//! number may be used again after Redis has lost its data.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::delivery::millis::millis;
use crate::redis::connection::Link;
use crate::redis::error::{Error, bounded_to};
use crate::redis::reply;
use crate::redis::script::Script;
use crate::rollout::scripts;
use crate::rollout::verify;
use crate::wire::keys;

/// Bytes of one upload or fetch.
const CHUNK: usize = 1 << 20;
/// The time until an unfinished upload expires.
const UPLOAD_TTL: Duration = Duration::from_secs(10 * 60);
/// The number of versions that are kept: the newest, the requested and the previous one among them.
pub const KEPT: usize = 10;
/// The most hosts that are read.
const HOSTS_MAX: isize = 1_000;
/// Bytes of the state of a host that are read.
const HOST_SEEN_MAX: usize = 64 * 1024;
/// The time until the name of a host expires.
const HOST_NAME_TTL: Duration = Duration::from_secs(60);
/// Bytes of the name of a deploy's author.
const NAME_MAX: usize = 128;

/// The time until a verdict expires. A verdict is removed with its version; a verdict about a removed
/// version expires.
const VERDICT_TTL: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Bytes of the text of a verdict: the host and the reason.
const TEXT_MAX: usize = 512;
/// Bytes of a verdict that are read: the text and a digest.
const READ_MAX: usize = TEXT_MAX + 128;

const COMMAND: &str = "versions";

/// The versions of one queue. Its methods fail with any error of Redis.
#[derive(Debug)]
pub struct Store {
    link: Arc<Link>,
    key: String,
}

/// The version that hosts should run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requested {
    /// The unique id of the request, also across a loss of data.
    pub token: String,
    /// The version; 0 = no stored version.
    pub number: u64,
    /// The command that requested it.
    pub action: Action,
    /// The time since the request.
    pub age: Duration,
}

/// A command that requests a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Deploy a new version.
    Deploy,
    /// Go back to a version.
    RollBack,
    /// Promote the canary.
    Promote,
}

/// A stored version.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Stored {
    /// The number.
    #[serde(rename = "version")]
    pub number: u64,
    /// The digest.
    pub digest: String,
    /// Bytes of the component.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// The time of the deploy, in epoch milliseconds.
    pub at_ms: u64,
    /// The author of the deploy.
    pub by: String,
}

/// All stored versions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoredVersions {
    /// The requested version; 0 = no stored version.
    pub requested: u64,
    /// The version that a rollback requests; 0 = the previous version of each host.
    pub previous: u64,
    /// The versions, the newest first.
    pub stored: Vec<Stored>,
}

/// The verdicts of hosts about a version.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Verdicts {
    /// The last host that kept the version after its trial.
    pub kept: Option<String>,
    /// The last host that rejected the version, with the reason.
    #[serde(rename = "given_up")]
    pub rejected: Option<String>,
}

impl Verdicts {
    /// Whether a host has kept the version and no host has rejected it.
    pub fn is_proven(&self) -> bool {
        self.kept.is_some() && self.rejected.is_none()
    }
}

/// The result of a deploy, a rollback or a promotion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChangeResult {
    /// This version is requested now.
    Requested(u64),
    /// This queue never had a deploy.
    NothingDeployed,
    /// The upload, or the version to go back to, does not exist.
    Missing,
}

/// The result of fetching a version.
#[derive(Debug)]
pub enum Fetched {
    /// The component.
    Component(Vec<u8>),
    /// The component is too large and was not fetched; the reason, for people.
    TooLarge(String),
    /// The component does not have its digest; the reason, for people.
    Damaged(String),
}

impl Store {
    /// The versions of the queue with this key.
    pub fn new(link: Link, key: &str) -> Self {
        Self::sharing(Arc::new(link.of(key)), key)
    }

    /// The same over a connection that others use as well: for readers of many queues.
    pub fn sharing(link: Arc<Link>, key: &str) -> Self {
        Self {
            link,
            key: key.to_owned(),
        }
    }

    /// Store a component and request it. `token` is the unique id of this deploy, which may be repeated.
    pub async fn deploy(
        &self,
        token: &str,
        component: &[u8],
        by: &str,
    ) -> Result<ChangeResult, Error> {
        let upload = keys::upload(&self.key, token);
        // A deploy whose reply was lost is not repeated.
        if self.field("token").await?.as_deref() != Some(token) {
            self.upload(&upload, component).await?;
            let length = component.len() as u64;
            let stored = self.digest_of(&upload, length).await?;
            if stored != Some(Sha256::digest(component).into()) {
                return Ok(ChangeResult::Missing);
            }
        }
        let mut call = scripts::DEPLOY.on(&[&keys::versions(&self.key), &upload]);
        call.arg(token)
            .arg(component.len())
            .arg(&*verify::digest(component))
            .arg(bounded_to(by, NAME_MAX))
            .arg(keys::version(&self.key, ""))
            .arg(KEPT);
        self.change(&scripts::DEPLOY, &call).await
    }

    /// Request the previous version, or version `to`.
    pub async fn roll_back(
        &self,
        token: &str,
        by: &str,
        to: Option<u64>,
    ) -> Result<ChangeResult, Error> {
        let to = to.map_or(String::new(), |number| number.to_string());
        self.request(token, "rollback", by, &to).await
    }

    /// Promote the canary on all hosts.
    pub async fn promote(&self, token: &str, by: &str) -> Result<ChangeResult, Error> {
        self.request(token, "promote", by, "").await
    }

    async fn request(
        &self,
        token: &str,
        action: &str,
        by: &str,
        to: &str,
    ) -> Result<ChangeResult, Error> {
        let mut call = scripts::REQUEST_VERSION.on(&[&keys::versions(&self.key)]);
        call.arg(token)
            .arg(action)
            .arg(bounded_to(by, NAME_MAX))
            .arg(to)
            .arg(keys::version(&self.key, ""))
            .arg(millis(VERDICT_TTL));
        self.change(&scripts::REQUEST_VERSION, &call).await
    }

    async fn change(&self, script: &'static Script, call: &Cmd) -> Result<ChangeResult, Error> {
        match self.link.run(script, call).await? {
            Value::Int(number) => Ok(ChangeResult::Requested(u64::try_from(number).unwrap_or(0))),
            other => match &*reply::text(script.name(), other)? {
                "gone" => Ok(ChangeResult::Missing),
                "nothing" => Ok(ChangeResult::NothingDeployed),
                _ => Err(reply::invalid(script.name(), "the reply is unknown")),
            },
        }
    }

    /// The requested version; `None` = the queue never had a deploy.
    pub async fn requested(&self) -> Result<Option<Requested>, Error> {
        let mut pipeline = Pipeline::new();
        let fields = ["token", "wanted", "action", "at"];
        let get = pipeline.cmd("HMGET").arg(keys::versions(&self.key));
        get.arg(&fields);
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
        Ok(Some(Requested {
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

    /// The version with this number; `None` = it is not stored.
    pub async fn stored(&self, number: u64) -> Result<Option<Stored>, Error> {
        let Some(found) = self.field(&format!("v:{number}")).await? else {
            return Ok(None);
        };
        let unknown =
            || reply::invalid(COMMAND, format!("version {number} is described otherwise"));
        parse(number, &found).map(Some).ok_or_else(unknown)
    }

    /// A field of the hash of versions.
    async fn field(&self, name: &str) -> Result<Option<String>, Error> {
        let mut get = cmd("HGET");
        get.arg(keys::versions(&self.key)).arg(name);
        match self.link.call(COMMAND, &get).await? {
            Value::Nil => Ok(None),
            found => reply::text(COMMAND, found).map(Some),
        }
    }

    /// Fetch a version, of at most `max` bytes, and check its digest.
    pub async fn fetch(&self, stored: &Stored, max: u64) -> Result<Fetched, Error> {
        if stored.size > max {
            let reason = format!("is {} bytes, more than the limit of {max}", stored.size);
            return Ok(Fetched::TooLarge(reason));
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
        if bytes.len() as u64 != stored.size || *verify::digest(&bytes) != *stored.digest {
            let length = bytes.len();
            let reason = format!("is damaged: the {length} stored bytes do not have its digest");
            return Ok(Fetched::Damaged(reason));
        }
        Ok(Fetched::Component(bytes))
    }

    /// All stored versions.
    pub async fn report(&self) -> Result<StoredVersions, Error> {
        let mut get = cmd("HGETALL");
        get.arg(keys::versions(&self.key));
        let mut report = StoredVersions::default();
        for (field, value) in reply::pairs(COMMAND, self.link.call(COMMAND, &get).await?)? {
            let field = reply::text(COMMAND, field)?;
            match &*field {
                "wanted" => report.requested = reply::count(COMMAND, &value)?,
                "before" => report.previous = reply::count(COMMAND, &value)?,
                field => {
                    let number = field.strip_prefix("v:").and_then(|n| n.parse().ok());
                    if let Some(number) = number {
                        let text = reply::text(COMMAND, value)?;
                        report.stored.extend(parse(number, &text));
                    }
                }
            }
        }
        let newest_first = |stored: &Stored| Reverse(stored.number);
        report.stored.sort_by_key(newest_first);
        Ok(report)
    }

    /// Publish the state of a host for `ttl`; `None` = remove it.
    pub async fn publish_host(
        &self,
        name: &str,
        seen: Option<&str>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let (hosts, host) = (keys::hosts(&self.key), keys::host(&self.key, name));
        let mut call = scripts::SEEN.on(&[&hosts, &host]);
        call.arg(name)
            .arg(seen.unwrap_or_default())
            .arg(millis(ttl))
            .arg(millis(HOST_NAME_TTL));
        self.link.run(&scripts::SEEN, &call).await.map(drop)
    }

    /// The published states of the hosts of the queue.
    pub async fn hosts(&self) -> Result<Vec<String>, Error> {
        let mut all = cmd("ZRANGE");
        all.arg(keys::hosts(&self.key)).arg(0).arg(HOSTS_MAX - 1);
        let names = reply::values(COMMAND, self.link.call(COMMAND, &all).await?)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // A host has the right to `GETRANGE`: it fetches versions.
        let mut pipeline = Pipeline::new();
        for name in names {
            let host = keys::host(&self.key, &String::from_utf8_lossy(&name));
            pipeline.add_command(begin_of(host, HOST_SEEN_MAX));
        }
        let mut hosts = Vec::new();
        for found in self.link.pipeline(COMMAND, &pipeline).await? {
            let text = reply::bytes(COMMAND, reply::accepted(COMMAND, found)?)?;
            // Else it is gone.
            if !text.is_empty() {
                hosts.push(String::from_utf8_lossy(&text).into_owned());
            }
        }
        Ok(hosts)
    }

    /// Record that a host has kept or rejected this version. `text` names the host and the reason.
    pub async fn record_verdict(
        &self,
        number: u64,
        digest: &str,
        is_kept: bool,
        text: &str,
    ) -> Result<(), Error> {
        let text = bounded_to(text, TEXT_MAX);
        let mut pipeline = Pipeline::new();
        let mut set = |key: String, value: String| {
            let set = pipeline.cmd("SET").arg(key).arg(value);
            set.arg("PX").arg(millis(VERDICT_TTL));
        };
        set(
            self.verdict_key(number, is_kept),
            format!("{digest} {text}"),
        );
        if is_kept {
            set(self.last_kept_key(), format!("{number} {digest}"));
        }
        for reply in self.link.pipeline(COMMAND, &pipeline).await? {
            reply::accepted(COMMAND, reply)?;
        }
        Ok(())
    }

    /// The version that a host kept last, or that an operator chose since, if it is still stored.
    pub async fn last_kept(&self) -> Result<Option<Stored>, Error> {
        let get = begin_of(self.last_kept_key(), READ_MAX);
        let found = reply::text(COMMAND, self.link.call(COMMAND, &get).await?)?;
        let Some((number, digest)) = found.split_once(' ') else {
            return Ok(None);
        };
        let stored = match number.parse() {
            Ok(number) => self.stored(number).await?,
            Err(_) => None,
        };
        Ok(stored.filter(|stored| stored.digest == digest))
    }

    fn last_kept_key(&self) -> String {
        keys::version(&self.key, "kept")
    }

    /// The verdicts about each of these versions.
    pub async fn verdicts(&self, stored: &[Stored]) -> Result<Vec<Verdicts>, Error> {
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for stored in stored {
            for is_kept in [true, false] {
                let key = self.verdict_key(stored.number, is_kept);
                pipeline.add_command(begin_of(key, READ_MAX));
            }
        }
        let found = self.link.pipeline(COMMAND, &pipeline).await?;
        let mut found = found.into_iter();
        let mut next = |stored: &Stored| {
            let value = reply::accepted(COMMAND, found.next().unwrap_or(Value::Nil))?;
            Ok::<_, Error>(match value {
                Value::Nil => None,
                value => parse_verdict(&reply::text(COMMAND, value)?, &stored.digest),
            })
        };
        let verdicts = stored.iter().map(|stored| {
            Ok(Verdicts {
                kept: next(stored)?,
                rejected: next(stored)?,
            })
        });
        verdicts.collect()
    }

    fn verdict_key(&self, number: u64, is_kept: bool) -> String {
        let word = if is_kept { "kept" } else { "given-up" };
        keys::version(&self.key, &format!("{number}:{word}"))
    }

    async fn upload(&self, key: &str, component: &[u8]) -> Result<(), Error> {
        let mut at = 0;
        for chunk in component.chunks(CHUNK) {
            // Overwrites what an earlier try has written.
            let mut pipeline = Pipeline::new();
            pipeline.cmd("SETRANGE").arg(key).arg(at).arg(chunk);
            let expire = pipeline.cmd("PEXPIRE").arg(key);
            expire.arg(millis(UPLOAD_TTL));
            for reply in self.link.pipeline("SETRANGE", &pipeline).await? {
                reply::accepted("SETRANGE", reply)?;
            }
            at += chunk.len();
        }
        Ok(())
    }

    /// The digest of the value of `key`, if the value has this length.
    async fn digest_of(&self, key: &str, length: u64) -> Result<Option<[u8; 32]>, Error> {
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
        let mut get = cmd("GETRANGE");
        get.arg(key).arg(at).arg(at + CHUNK as u64 - 1);
        reply::bytes("GETRANGE", self.link.call("GETRANGE", &get).await?)
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

/// The text of a verdict, if it is about the version with this digest.
fn parse_verdict(text: &str, digest: &str) -> Option<String> {
    let (of, text) = text.split_once(' ')?;
    (of == digest).then(|| text.to_owned())
}

/// Read the first bytes of a value.
fn begin_of(key: String, bytes: usize) -> Cmd {
    let mut get = cmd("GETRANGE");
    get.arg(key).arg(0).arg(bytes - 1);
    get
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_versions_are_parsed() {
        let text = "sha256:00 12 1700000000000 ann at build 7";
        let stored = parse(3, text).unwrap();
        assert_eq!(stored.by, "ann at build 7");
        assert_eq!((stored.number, stored.size), (3, 12));
        for bad in ["", "sha256:00 12", "sha256:00 x 1 ann"] {
            assert_eq!(parse(1, bad), None, "{bad}");
        }
    }

    #[test]
    fn a_verdict_applies_to_one_digest() {
        assert_eq!(
            parse_verdict("sha256:00 a: b", "sha256:00").as_deref(),
            Some("a: b")
        );
        for other in ["", "sha256:00", "sha256:01 a: b", "sha256:000 a"] {
            assert_eq!(parse_verdict(other, "sha256:00"), None, "{other}");
        }
    }

    #[test]
    fn one_rejection_is_enough() {
        let host = |word: bool| word.then(|| "host".to_owned());
        for (kept, rejected, proven) in [
            (true, false, true),
            (true, true, false),
            (false, true, false),
            (false, false, false),
        ] {
            let verdicts = Verdicts {
                kept: host(kept),
                rejected: host(rejected),
            };
            assert_eq!(verdicts.is_proven(), proven, "{verdicts:?}");
        }
    }
}
