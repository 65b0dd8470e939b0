//! What Redis knows of one message: where it is, its attempts, its history, and what follows from it.
//!
//! A message is looked for by its id (`x-message-id`, or the id of its entry or delivery), and its follow-ups
//! by their `x-correlation-id`. Listed queues are searched, and their dead letters: the newest entries of each,
//! up to a limit. Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redis::{Value, cmd};
use serde::Serialize;

use crate::dead_letter::{DeadLetters, Entry, Filter};
use crate::delivery::declared::declared;
use crate::delivery::effect::CORRELATION_ID;
use crate::delivery::hold::Held;
use crate::delivery::message::{Headers, RETRY_COUNT};
use crate::delivery::reply::inbox;
use crate::delivery::text::hex;
use crate::queue::journal::{Recorded, recorded};
use crate::queue::limits::seen;
use crate::queue::stream::PARKED_CONSUMER;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::reply::{self, Info};
use crate::redis::walk::{Entries, Members, Order, Places, Values};
use crate::registry::{Listed, ListedKind};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::schedule;
use crate::wire::dead_letter as header;
use crate::wire::decoded::message_id;
use crate::wire::delayed::{TOKEN_LEN, fields_of};
use crate::wire::entry_id::parse_entry_id;
use crate::wire::held;
use crate::wire::journal;
use crate::wire::keys;
use crate::wire::list::{self, Framing};
use crate::wire::reply as answer;
use crate::wire::stream;

const COMMAND: &str = "trace";
/// The most places that are returned.
const FOUND_MAX: usize = 1_000;
/// The most answers of an inbox that are searched, the newest ones.
const ANSWERS_MAX: usize = 1_000;

/// A copy of a message, or of one that follows from it.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The key that holds it.
    pub key: String,
    /// The queue that the key belongs to.
    pub queue: String,
    /// Its group of hosts, of a stream.
    pub group: Option<String>,
    /// The id of the message.
    pub id: String,
    /// The id of the entry that holds it.
    pub entry: Option<String>,
    /// Where it is on its way.
    pub state: Stage,
    /// The host that has it.
    pub host: Option<String>,
    /// For how long that host has not renewed its lease, in milliseconds.
    pub idle_ms: Option<u64>,
    /// When it is due, in epoch milliseconds.
    pub due_ms: Option<u64>,
    /// Its limits have reserved its start for then.
    pub is_reserved: bool,
    /// The limit that has, and its key.
    pub limit: Option<(String, String)>,
    /// Starts charged to it so far.
    pub attempts: Option<u64>,
    /// How often its handler has held it: these starts are not charged.
    pub holds: u32,
    /// When the first of these holds ended, in epoch milliseconds.
    pub held_since_ms: Option<u64>,
    /// Why it died.
    pub reason: Option<String>,
    /// Text for people about that.
    pub detail: Option<String>,
    /// When it died, in epoch milliseconds.
    pub died_ms: Option<u64>,
    /// Its deaths, most recent first: queue, reason, and how often.
    pub history: Vec<(String, String, u64)>,
    /// Its trace, if it has one.
    pub traceparent: Option<String>,
    /// The message that it follows from, as its headers say.
    pub correlation: Option<String>,
    /// The schedule and the tick that it came from, as its id says.
    pub schedule: Option<(String, String)>,
    /// The inbox of the producer that waits for it.
    pub inbox: Option<String>,
    /// The answers to its producer that are kept.
    pub answers: Vec<KeptAnswer>,
    /// The recorded calls of its attempts.
    pub journal: Vec<Recorded>,
    /// It follows from the message that was asked for.
    pub is_follow_up: bool,
}

/// An answer to a producer that is kept, without the value.
#[derive(Clone, Debug, Serialize)]
pub struct KeptAnswer {
    /// What became of the message.
    pub status: &'static str,
    /// Why it was given up.
    pub reason: Option<String>,
    /// The bytes of what its handler answered; `None` = it did not.
    pub bytes: Option<usize>,
    /// When it was written, in epoch milliseconds.
    pub written_ms: u64,
}

impl Found {
    fn held(&mut self, held: Held) {
        self.holds = held.count;
        self.held_since_ms = (held.count > 0).then_some(held.since_ms);
    }
}

declared! {
    /// Where a message is on its way.
    #[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Stage (/// The word for it.
                    label -> &'static str) {
        /// No host has read it.
        Unread = "unread",
        /// A host has it.
        Held = "held",
        /// It waits for its time.
        Delayed = "delayed",
        /// It is settled, and the stream keeps its entry.
        Settled = "settled",
        /// It is a dead letter.
        Dead = "dead",
    }
}

/// What is known of a message.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Trace {
    /// The id that was asked for.
    pub id: String,
    /// Where it is, and where its follow-ups are.
    pub found: Vec<Found>,
    /// How many queues were searched.
    pub queues: usize,
    /// Keys of which only the newest entries were searched.
    pub cut: Vec<String>,
    /// Keys that could not be searched, and why.
    pub problems: Vec<String>,
}

/// Look for a message in these queues, in at most the `newest` newest entries of each key.
/// A key that cannot be read is named in the result.
pub async fn trace(connector: &Connector, queues: &[Listed], id: &str, newest: usize) -> Trace {
    let mut search = Search {
        link: Arc::new(connector.link("trace")),
        newest,
        trace: Trace {
            id: id.to_owned(),
            queues: queues.len(),
            ..Trace::default()
        },
    };
    let mut dead: Vec<&str> = Vec::new();
    for queue in queues {
        let searched = match queue.kind {
            ListedKind::Stream => search.stream(queue).await,
            ListedKind::List | ListedKind::SimpleList => search.list(queue).await,
            // A channel holds nothing.
            ListedKind::Channel => Ok(()),
        };
        if let Err(error) = searched {
            let problem = format!("{}: {error}", queue.queue);
            search.trace.problems.push(problem);
        }
        if let Some(key) = queue.dead_letter.as_deref()
            && !dead.contains(&key)
        {
            dead.push(key);
        }
    }
    for key in dead {
        if let Err(error) = search.dead_letters(connector, key).await {
            search.trace.problems.push(format!("{key}: {error}"));
        }
    }
    search.trace
}

struct Search {
    link: Arc<Link>,
    newest: usize,
    trace: Trace,
}

/// Whether a message is the one that is looked for, or follows from it.
enum Match {
    Itself,
    FollowUp,
}

impl Search {
    /// Compare a message: by its id in its headers, or else by the id of its place.
    fn matches(&self, headers: &Headers, place: Option<&str>) -> Option<(Match, String)> {
        let id = message_id(headers).or(place);
        if place == Some(self.trace.id.as_str()) || id == Some(self.trace.id.as_str()) {
            return Some((Match::Itself, self.trace.id.clone()));
        }
        let correlated = headers.find_str(CORRELATION_ID) == Some(self.trace.id.as_str());
        correlated.then(|| (Match::FollowUp, id.unwrap_or_default().to_owned()))
    }

    /// Add a copy that was found; `None` = there are too many.
    fn found(
        &mut self,
        queue: &Listed,
        key: &str,
        state: Stage,
        what: (Match, String),
        headers: &Headers,
    ) -> Option<&mut Found> {
        if self.trace.found.len() >= FOUND_MAX {
            return None;
        }
        let history = crate::wire::death::read(headers).history;
        let deaths = history.records().iter();
        let origin = schedule::origin(&what.1);
        let origin = origin.map(|(name, tick)| (name.to_owned(), tick.to_owned()));
        self.trace.found.push(Found {
            schedule: origin,
            key: key.to_owned(),
            queue: queue.queue.clone(),
            group: queue.group.clone(),
            id: what.1,
            entry: None,
            state,
            host: None,
            idle_ms: None,
            due_ms: None,
            is_reserved: false,
            limit: None,
            attempts: headers.find_number(RETRY_COUNT),
            holds: 0,
            held_since_ms: None,
            reason: None,
            detail: None,
            died_ms: None,
            history: deaths
                .map(|d| (d.queue.clone(), d.reason.clone(), d.count))
                .collect(),
            traceparent: headers.find_str("traceparent").map(str::to_owned),
            correlation: headers.find_str(CORRELATION_ID).map(str::to_owned),
            inbox: inbox(headers).map(str::to_owned),
            answers: Vec::new(),
            journal: Vec::new(),
            is_follow_up: matches!(what.0, Match::FollowUp),
        });
        self.trace.found.last_mut()
    }

    async fn stream(&mut self, queue: &Listed) -> Result<(), Error> {
        let group = queue.group.as_deref().unwrap_or_default();
        let read_to = self.last_delivered(&queue.queue, group).await?;
        let mut seen = false;
        // An entry is found by its id, however old it is.
        if parse_entry_id(&self.trace.id).is_some() {
            let id = self.trace.id.clone();
            let mut one = Entries::new(&queue.queue, Order::Up, &id, &id);
            for (entry, fields) in one.next(&self.link).await? {
                self.entry(queue, group, &read_to, &entry, &fields).await?;
                seen = true;
            }
        }
        let mut newest = Entries::newest(&queue.queue).most(self.newest);
        loop {
            let page = newest.next(&self.link).await?;
            if page.is_empty() {
                break;
            }
            for (entry, fields) in &page {
                if !(seen && *entry == self.trace.id) {
                    self.entry(queue, group, &read_to, entry, fields).await?;
                }
            }
        }
        if newest.left == 0 {
            self.trace.cut.push(queue.queue.clone());
        }
        self.delayed(queue).await
    }

    /// An entry of a stream: found if it is meant.
    async fn entry(
        &mut self,
        queue: &Listed,
        group: &str,
        read_to: &str,
        entry: &str,
        fields: &[(Bytes, Bytes)],
    ) -> Result<(), Error> {
        let headers = &stream::headers(fields);
        let Some(what) = self.matches(headers, Some(entry)) else {
            return Ok(());
        };
        let carried = journal::carried(fields);
        let mut pending = cmd("XPENDING");
        pending.arg(&queue.queue).arg(group);
        pending.arg(entry).arg(entry).arg(1);
        let held = reply::array(COMMAND, self.link.call(COMMAND, &pending).await?)?.pop();
        let Some(held) = held else {
            let order = |id: &str| parse_entry_id(id).map(|(id, _)| id);
            let state = match order(entry) > order(read_to) {
                true => Stage::Unread,
                false => Stage::Settled,
            };
            let inbox = inbox(headers).map_or_else(|| format!("{group}:{entry}"), str::to_owned);
            let answers = self.answers(&queue.queue, &inbox, &what.1).await?;
            if let Some(found) = self.found(queue, &queue.queue, state, what, headers) {
                found.entry = Some(entry.to_owned());
                found.answers = answers;
            }
            return Ok(());
        };
        let [_, consumer, idle, count] = reply::tuple(COMMAND, held)?;
        let consumer = reply::text(COMMAND, consumer)?;
        let idle = reply::count(COMMAND, &idle)?;
        let count = reply::count(COMMAND, &count)?;
        let is_parked = consumer == PARKED_CONSUMER;
        let score = async |set: String| {
            let mut score = cmd("ZSCORE");
            self.link.call(COMMAND, score.arg(set).arg(entry)).await
        };
        let (state, due, is_reserved) = match is_parked {
            true => {
                let score = score(keys::parked(&queue.queue, group)).await?;
                let exact = reply::exact_score(COMMAND, &score).ok();
                let due = reply::score(COMMAND, &score).ok();
                (Stage::Delayed, due, exact.is_some_and(held::is_reserved))
            }
            false => (Stage::Held, None, false),
        };
        let limit = match is_reserved {
            true => self.limit(queue, headers, fields).await,
            false => None,
        };
        let journal = keys::journal(&queue.queue, group, entry);
        let journal = self.journal(&journal, carried).await?;
        let held = match score(keys::held(&queue.queue, group)).await {
            Err(error) if error.is_missing_right() => Held::default(),
            held => match held? {
                Value::Nil => Held::default(),
                score => held::of_score(reply::exact_score(COMMAND, &score)?),
            },
        };
        if let Some(found) = self.found(queue, &queue.queue, state, what, headers) {
            found.journal = journal;
            found.entry = Some(entry.to_owned());
            found.host = (!is_parked).then_some(consumer);
            found.idle_ms = (!is_parked).then_some(idle);
            found.due_ms = due;
            found.is_reserved = is_reserved;
            found.limit = limit;
            let count = count.saturating_sub(held.count.into());
            found.attempts = Some(count + found.attempts.unwrap_or_default());
            found.held(held);
        }
        Ok(())
    }

    /// The one limit with a key that the hosts of the queue have, and the key of this entry. Where nothing says them, the result is empty.
    async fn limit(
        &self,
        queue: &Listed,
        headers: &Headers,
        fields: &[(Bytes, Bytes)],
    ) -> Option<(String, String)> {
        let store = Store::sharing(Arc::clone(&self.link), &queue.queue);
        let hosts = HostSeen::parse_all(&store.hosts().await.ok()?);
        let limits = hosts
            .into_iter()
            .find(|host| host.group == queue.group)?
            .limits;
        let mut keyed = limits.into_iter().filter(|limit| limit.by.is_some());
        let (Some(limit), None) = (keyed.next(), keyed.next()) else {
            return None;
        };
        let body = fields.iter().find(|(name, _)| *name == stream::BODY_FIELD);
        let body = body.map_or(&b""[..], |(_, body)| body);
        let by = limit.by?;
        let key = seen::key_of(&by, headers, body);
        // A body may be encoded: then its key is not known here.
        let key = key.or_else(|| by.starts_with("header:").then(String::new))?;
        Some((limit.name, key))
    }

    /// The answers in an inbox that are about this message. Without the right to ask, the result is empty.
    async fn answers(&self, queue: &str, inbox: &str, id: &str) -> Result<Vec<KeptAnswer>, Error> {
        let key = keys::replies(queue, inbox);
        let mut newest = Entries::newest(key).most(ANSWERS_MAX);
        let mut kept = Vec::new();
        loop {
            let page = match newest.next(&self.link).await {
                Err(error) if error.is_missing_right() => return Ok(Vec::new()),
                page => page?,
            };
            if page.is_empty() {
                break;
            }
            kept.extend(page.into_iter().filter_map(|(entry, fields)| {
                let answer = answer::read(&fields).filter(|answer| answer.id == id)?;
                Some(KeptAnswer {
                    status: answer.status.label(),
                    reason: answer.reason,
                    bytes: answer.value.map(|value| value.len()),
                    written_ms: parse_entry_id(&entry).map_or(0, |(_, ms)| ms),
                })
            }));
        }
        kept.reverse();
        Ok(kept)
    }

    /// The records of a message, which holds these itself. Without the right to ask, the result is empty.
    async fn journal(
        &self,
        journal: &str,
        carried: BTreeMap<u32, Bytes>,
    ) -> Result<Vec<Recorded>, Error> {
        match recorded(&self.link, journal, carried).await {
            Err(error) if error.is_missing_right() => Ok(Vec::new()),
            records => records,
        }
    }

    async fn last_delivered(&self, key: &str, group: &str) -> Result<String, Error> {
        let groups = self
            .link
            .call(COMMAND, cmd("XINFO").arg("GROUPS").arg(key))
            .await?;
        for info in reply::array(COMMAND, groups)? {
            let mut info = Info::new(COMMAND, info)?;
            if reply::bytes(COMMAND, info.take("name"))? == group {
                return info.text("last-delivered-id");
            }
        }
        Ok("0-0".to_owned())
    }

    /// The values of a list, of the lists beside it, and of its instances.
    async fn list(&mut self, queue: &Listed) -> Result<(), Error> {
        let key = queue.queue.clone();
        self.values(queue, &key, Stage::Unread, None).await?;
        if queue.kind == ListedKind::SimpleList {
            return Ok(());
        }
        self.values(queue, &keys::retry(&key), Stage::Unread, None)
            .await?;
        self.delayed(queue).await?;
        let mut instances = Members::new(keys::instances(&key));
        while let Some(names) = instances.next(&self.link).await? {
            for name in names {
                let held = keys::processing(&key, &name);
                self.values(queue, &held, Stage::Held, Some(&name)).await?;
            }
        }
        Ok(())
    }

    async fn values(
        &mut self,
        queue: &Listed,
        key: &str,
        state: Stage,
        host: Option<&str>,
    ) -> Result<(), Error> {
        let mut newest = Values::new(key, Places::Newest).most(self.newest);
        loop {
            let page = newest.next(&self.link).await?;
            if page.is_empty() {
                break;
            }
            for (value, _) in page {
                // Behind a token, where a host holds it.
                let (token, value) = match host {
                    Some(_) => split_token(value),
                    None => (None, value),
                };
                let found = self.value(queue, key, state, token.as_deref(), &value);
                if let Some(found) = found.await? {
                    found.host = host.map(str::to_owned);
                }
            }
        }
        if newest.left == 0 {
            self.trace.cut.push(key.to_owned());
        }
        Ok(())
    }

    async fn value(
        &mut self,
        queue: &Listed,
        key: &str,
        state: Stage,
        token: Option<&str>,
        value: &Bytes,
    ) -> Result<Option<&mut Found>, Error> {
        let (headers, _) = list::parts(value, Framing::Auto).unwrap_or_default();
        let Some(what) = self.matches(&headers, token) else {
            return Ok(None);
        };
        let mut journal = Vec::new();
        if let Some(name) = headers.find_str(header::JOURNAL).or(token) {
            let carried = headers.find(header::RECORDS);
            let carried = carried.map(journal::records).unwrap_or_default();
            let key = keys::journal(&queue.queue, "", name);
            journal = self.journal(&key, carried).await?;
        }
        let Some(found) = self.found(queue, key, state, what, &headers) else {
            return Ok(None);
        };
        found.journal = journal;
        found.entry = token.map(str::to_owned);
        if queue.kind == ListedKind::List
            && let Some(held) = headers.find_str(header::HELD)
        {
            found.held(held::of_header(held));
        }
        Ok(Some(found))
    }

    /// Messages that wait for their time before they enter their queue, or between two attempts on a list.
    async fn delayed(&mut self, queue: &Listed) -> Result<(), Error> {
        let key = keys::delayed(&queue.queue);
        let mut first = Values::new(&key, Places::Scores).most(self.newest);
        loop {
            let page = first.next(&self.link).await?;
            if page.is_empty() {
                break;
            }
            for (member, due) in page {
                let (token, rest) = split_token(member);
                let found = if queue.kind == ListedKind::Stream {
                    let headers = stream::headers(&fields_of(&rest));
                    self.matches(&headers, token.as_deref())
                        .and_then(|what| self.found(queue, &key, Stage::Delayed, what, &headers))
                } else {
                    self.value(queue, &key, Stage::Delayed, token.as_deref(), &rest)
                        .await?
                };
                if let Some(found) = found {
                    found.due_ms = Some(due);
                }
            }
        }
        if first.left == 0 {
            self.trace.cut.push(key);
        }
        Ok(())
    }

    async fn dead_letters(
        &mut self,
        connector: &Connector,
        key: &str,
    ) -> Result<(), crate::dead_letter::Error> {
        let letters = DeadLetters::new(connector, key).even_if_served(true);
        let filter = Filter {
            any_entry: true,
            ..Filter::default()
        };
        let mut scan = letters.scan(filter).await?;
        while let Some(entries) = scan.next().await? {
            for entry in &entries {
                let found = self.dead_letter(key, entry).await;
                found.map_err(crate::dead_letter::Error::Redis)?;
            }
        }
        Ok(())
    }

    async fn dead_letter(&mut self, key: &str, entry: &Entry) -> Result<(), Error> {
        let headers = &entry.headers;
        let there = headers.find_str(header::SOURCE_ID);
        let what = match self.matches(headers, Some(&entry.id)) {
            Some(what) => what,
            None if there == Some(self.trace.id.as_str()) => (Match::Itself, self.trace.id.clone()),
            None => return Ok(()),
        };
        let queue = Listed {
            queue: entry.source.clone().unwrap_or_default(),
            kind: ListedKind::Stream,
            group: entry.group.clone(),
            recovery: None,
            dead_letter: None,
            seen_ms: 0,
        };
        let answers = match inbox(headers) {
            Some(inbox) => self.answers(&queue.queue, inbox, &what.1).await?,
            None => Vec::new(),
        };
        if let Some(found) = self.found(&queue, key, Stage::Dead, what, headers) {
            found.answers = answers;
            found.entry = Some(entry.id.clone());
            found.attempts = entry.attempts;
            found.reason.clone_from(&entry.reason);
            found.detail.clone_from(&entry.detail);
            found.died_ms = Some(entry.died_ms());
            found.journal = entry.records().into_iter().map(Recorded::from).collect();
        }
        Ok(())
    }
}

/// The token in front of a value, as text, and the value.
fn split_token(entry: Bytes) -> (Option<String>, Bytes) {
    if entry.len() < TOKEN_LEN {
        return (None, entry);
    }
    (Some(hex(&entry[..TOKEN_LEN])), entry.slice(TOKEN_LEN..))
}
