//! The recording of an attempt: every answer of the host to it. Its dead letter carries it, so that the attempt can run
//! again with nothing outside.
//!
//! [`Track`] stands between an attempt and the host: a [`Tape`] keeps the answers, a [`Player`] gives them again.
//! Readings of clocks are matched by their order, calls by what they ask for and then by their order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::effect::Budget;
use super::evidence::Kept;
use super::message::Headers;
use super::millis::millis;
use super::outcome::Outcome;
use super::quoted::Pairs;
use super::text::{DETAIL_MAX, truncated};

/// The most bytes of a recording.
pub const RECORDING_MAX: usize = 256 << 10;
/// The most bytes of all recordings of a handler that are in memory.
pub const RECORDINGS_MAX: usize = 64 << 20;
/// The layout below.
const VERSION: u32 = 1;
/// The most bytes of the headers of the message.
const HEADERS_MAX: usize = 64 << 10;
/// The most bytes of how the attempt ended, and of names.
const REST_MAX: usize = 8 << 10;
/// The most bytes of what a call is shown as, and what a call takes beside its answer.
const SHOWN_MAX: usize = 256;
const CALL_SIZE: usize = 192;
/// What a reading takes in memory, which is more than most take as text.
const READING_SIZE: usize = 8;
/// The shortest secret that is looked for: shorter ones are found everywhere.
const SECRET_MIN: usize = 4;
/// What a clock that is read more often than before goes on by, in nanoseconds.
const BEYOND: u64 = 1_000;
/// The most differences that a player notes.
const NOTED_MAX: usize = 100;

/// Something that an attempt may read at any time: a number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// The time of day, in nanoseconds since 1970.
    WallClock,
    /// The monotonic clock, in nanoseconds.
    Monotonic,
    /// The milliseconds that the attempt has left.
    Deadline,
    /// 1 = the host stops.
    Cancelled,
}

/// What an attempt asks of the host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Ask {
    /// For people: `POST https://a.test/x`, `get orders:1`.
    pub shown: String,
    /// A digest of all of it.
    pub digest: String,
}

/// How an attempt ended.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Ended {
    /// `ack`, `nack-requeue`, `drop` or `fault`.
    pub outcome: String,
    /// The kind of fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The reason of a drop, or the detail of a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What is known of an attempt when it begins.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Head {
    /// The digest of the handler.
    pub handler: String,
    /// A digest of the settings that decide what the handler sees.
    pub settings: String,
    /// The id of the message.
    pub id: String,
    /// The queue that the message came from.
    pub queue: String,
    /// When it was put there, in epoch milliseconds.
    pub enqueued_ms: u64,
    /// The headers as the handler saw them; `None` = they have more than 64 KiB.
    pub headers: Option<Pairs>,
    /// The number of the attempt.
    pub attempt: u32,
    /// The most attempts; 0 = no limit.
    pub max_attempts: u32,
    /// The messages of the call: more than one is a batch, of which the message is one.
    pub messages: usize,
    /// The seed of all random numbers, in hexadecimal digits.
    pub seed: String,
}

/// A call and its answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Exchange {
    /// The call.
    #[serde(flatten)]
    pub ask: Ask,
    /// When it began, in milliseconds from the start of the attempt.
    pub at_ms: u64,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// `null` = it had none, or the answer is not recorded.
    pub answer: Value,
}

/// A recording, as it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct Recording {
    version: u32,
    /// What was known at the begin.
    #[serde(flatten)]
    pub head: Head,
    /// How it ended.
    pub ended: Ended,
    /// Whether the instance had served no other message before.
    pub fresh: bool,
    /// How many calls at the end are not recorded: there was no room. `None` = all are recorded.
    pub left_out: Option<u32>,
    /// The names of the secrets that are left out of answers.
    pub hidden: BTreeSet<String>,
    /// The first reading, and the difference of each later one.
    readings: BTreeMap<Reading, Vec<i64>>,
    /// The calls, in the order of their begins.
    pub calls: Vec<Exchange>,
}

/// The same, as it is written: without its calls.
#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    head: &'a Head,
    ended: &'a Ended,
    fresh: bool,
    left_out: Option<u32>,
    hidden: &'a BTreeSet<String>,
    readings: BTreeMap<Reading, Vec<i64>>,
}

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is not JSON of this shape.
    #[error("the recording cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
    /// A newer hostler has written it.
    #[error("the recording has the version {0}, and this hostler reads {VERSION}")]
    Version(u32),
}

impl Recording {
    /// Read it.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn read(text: &[u8]) -> Result<Self, Unreadable> {
        let read: Self = serde_json::from_slice(text)?;
        match read.version {
            VERSION => Ok(read),
            version => Err(Unreadable::Version(version)),
        }
    }

    /// The headers of the message, if they are recorded.
    pub fn headers(&self) -> Option<Headers> {
        let pairs = self.head.headers.clone()?;
        Some(Headers::new(pairs.0))
    }
}

impl Head {
    /// The headers, if there is room for them.
    pub fn headers(headers: &Headers) -> Option<Pairs> {
        let pairs = Pairs(headers.iter().cloned().collect());
        let size = serde_json::to_string(&pairs).map_or(usize::MAX, |text| text.len());
        (size <= HEADERS_MAX).then_some(pairs)
    }
}

impl From<&Outcome> for Ended {
    fn from(outcome: &Outcome) -> Self {
        let plain = |outcome: &str| Self {
            outcome: outcome.to_owned(),
            ..Self::default()
        };
        match outcome {
            Outcome::Ack => plain("ack"),
            Outcome::NackRequeue(_) => plain("nack-requeue"),
            Outcome::Drop(reason) => Self {
                detail: (reason.as_deref()).map(|text| truncated(text, DETAIL_MAX).to_owned()),
                ..plain("drop")
            },
            Outcome::Fault(fault) => Self {
                fault: Some(fault.kind.label().to_owned()),
                detail: Some(fault.detail.clone()),
                ..plain("fault")
            },
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.outcome)?;
        if let Some(fault) = &self.fault {
            write!(f, " ({fault})")?;
        }
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl Ask {
    /// A call that is shown like this.
    pub fn new(shown: &str, digest: String) -> Self {
        Self {
            shown: truncated(shown, SHOWN_MAX).to_owned(),
            digest,
        }
    }
}

/// Stands between an attempt and the host.
#[derive(Debug)]
pub enum Track {
    /// Keeps the answers.
    Records(Tape),
    /// Gives them again.
    Plays(Player),
}

impl Track {
    /// A number that the attempt reads. `live` reads it.
    pub fn reading(&self, kind: Reading, live: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Records(tape) => {
                let value = live();
                tape.reading(kind, value);
                value
            }
            Self::Plays(player) => player.reading(kind),
        }
    }

    /// The seed of random numbers, and the number of the next block of them.
    pub fn random(&self) -> (&str, u64) {
        let (seed, blocks) = match self {
            Self::Records(tape) => (&tape.head.seed, &tape.blocks),
            Self::Plays(player) => (&player.seed, &player.blocks),
        };
        (seed, blocks.fetch_add(1, Ordering::Relaxed))
    }

    /// The text with names in place of secrets.
    pub fn without_secrets(&self, text: &str) -> String {
        let mut value = Value::from(text);
        if let Self::Records(tape) = self {
            tape.lock().secrets.hide(&mut value);
        }
        value.as_str().unwrap_or_default().to_owned()
    }

    /// The attempt reads this secret. Returns what it gets: another text when it is played.
    pub fn secret(&self, name: &str, value: String) -> String {
        match self {
            Self::Records(tape) => {
                let mut state = tape.lock();
                state.has_read_secret = true;
                state.secrets.add(name, &value);
                state.secrets.hidden.insert(name.to_owned());
                value
            }
            Self::Plays(player) => {
                player.lock().secrets.insert(name.to_owned());
                placeholder(name)
            }
        }
    }

    /// Whether the attempt has read a secret so far: from there on it may be in the body of a request.
    pub fn has_read_secret(&self) -> bool {
        match self {
            Self::Records(tape) => tape.lock().has_read_secret,
            Self::Plays(player) => !player.lock().secrets.is_empty(),
        }
    }
}

/// What stands in place of a secret.
fn placeholder(name: &str) -> String {
    format!("hidden-secret-{name}")
}

/// Secrets by name.
#[derive(Default)]
struct Secrets {
    known: Vec<(String, String)>,
    /// Those that were found in an answer, or read.
    hidden: BTreeSet<String>,
}

impl Secrets {
    /// The last name of a value counts. Longer ones come first: one may hold another.
    fn add(&mut self, name: &str, value: &str) {
        if value.len() >= SECRET_MIN {
            self.known.retain(|(_, known)| known != value);
            self.known.push((name.to_owned(), value.to_owned()));
            self.known.sort_by_key(|(_, value)| Reverse(value.len()));
        }
    }

    /// Put names in place of secrets, in all texts and bytes.
    fn hide(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                for (name, secret) in &self.known {
                    if text.contains(secret) {
                        *text = text.replace(secret, &placeholder(name));
                        self.hidden.insert(name.clone());
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.hide(value)),
            Value::Object(map) => {
                if let Some(Value::String(text)) = map.get_mut("base64")
                    && let Ok(bytes) = STANDARD.decode(&*text)
                {
                    *text = STANDARD.encode(self.hide_bytes(bytes));
                    return;
                }
                map.values_mut().for_each(|value| self.hide(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn hide_bytes(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (name, secret) in &self.known {
            let place = |bytes: &[u8], from: usize| {
                let mut parts = bytes[from..].windows(secret.len());
                parts.position(|part| part == secret.as_bytes())
            };
            let mut from = 0;
            while let Some(found) = place(&bytes, from) {
                let stand_in = placeholder(name);
                let at = from + found;
                drop(bytes.splice(at..at + secret.len(), stand_in.bytes()));
                from = at + stand_in.len();
                self.hidden.insert(name.clone());
            }
        }
        bytes
    }
}

/// Keeps the answers to an attempt that runs.
pub struct Tape {
    head: Head,
    began: Instant,
    budget: Budget,
    blocks: AtomicU64,
    state: Mutex<Taped>,
}

// It holds answers and secrets.
impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tape").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Taped {
    /// The bytes that it holds, of the budget.
    size: usize,
    readings: BTreeMap<Reading, Vec<u64>>,
    calls: Vec<Taking>,
    /// How many calls there were since it is full; `None` = it is not.
    left_out: Option<u32>,
    secrets: Secrets,
    has_read_secret: bool,
}

struct Taking {
    ask: Ask,
    began: Instant,
    ms: u64,
    /// JSON.
    answer: Option<Box<str>>,
}

/// The place of a call on a tape; `None` = there was no room.
pub type Place = Option<usize>;

impl Tape {
    /// For an attempt that began then. Its bytes are of this budget.
    pub fn new(head: Head, began: Instant, budget: &Budget) -> Self {
        let tape = Self {
            began,
            budget: budget.clone(),
            blocks: AtomicU64::new(0),
            state: Mutex::default(),
            head,
        };
        let head = serde_json::to_string(&tape.head).map_or(0, |text| text.len());
        tape.take(&mut tape.lock(), head + REST_MAX);
        tape
    }

    fn lock(&self) -> MutexGuard<'_, Taped> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These secrets never enter it.
    pub fn hide(&self, secrets: &[(String, String)]) {
        let mut state = self.lock();
        for (name, value) in secrets {
            state.secrets.add(name, value);
        }
    }

    /// Nothing more is recorded.
    pub fn stop(&self) {
        self.lock().left_out.get_or_insert(0);
    }

    /// Room for this number of bytes.
    fn take(&self, state: &mut Taped, bytes: usize) -> bool {
        let is_room = state.left_out.is_none()
            && state.size.saturating_add(bytes) <= RECORDING_MAX
            && self.budget.take(bytes, RECORDINGS_MAX);
        match is_room {
            true => state.size += bytes,
            false => {
                state.left_out.get_or_insert(0);
            }
        }
        is_room
    }

    /// Room for a part of an answer that is not whole. It is given back.
    pub fn hold(&self, bytes: usize) -> bool {
        self.take(&mut self.lock(), bytes)
    }

    /// The room of the parts of an answer.
    pub fn give_back(&self, bytes: usize) {
        self.lock().size -= bytes;
        self.budget.give(bytes);
    }

    fn reading(&self, kind: Reading, value: u64) {
        let mut state = self.lock();
        let readings = state.readings.get(&kind);
        // A clock that is set back, or the first reading: longer as text.
        let last = readings.and_then(|readings| readings.last().copied());
        let text = difference(last, value).to_string().len() + 1;
        if self.take(&mut state, text.max(READING_SIZE)) {
            state.readings.entry(kind).or_default().push(value);
        }
    }

    /// A call begins.
    pub fn begin(&self, mut ask: Ask, now: Instant) -> Place {
        let mut state = self.lock();
        if let Some(left_out) = &mut state.left_out {
            *left_out = left_out.saturating_add(1);
            return None;
        }
        let mut shown = Value::from(ask.shown);
        state.secrets.hide(&mut shown);
        let shown = shown.as_str().unwrap_or_default();
        ask.shown = truncated(shown, SHOWN_MAX).to_owned();
        let shown = Value::from(&*ask.shown).to_string();
        if !self.take(&mut state, CALL_SIZE + shown.len()) {
            state.left_out = Some(1);
            return None;
        }
        state.calls.push(Taking {
            ask,
            began: now,
            ms: 0,
            answer: None,
        });
        Some(state.calls.len() - 1)
    }

    /// The call at this place is this one, and has this answer.
    pub fn answer(
        &self,
        place: Place,
        digest: Option<String>,
        answer: impl Serialize,
        now: Instant,
    ) {
        let mut state = self.lock();
        // There is none after the end of the attempt.
        let Some(place) = place.filter(|place| *place < state.calls.len()) else {
            return;
        };
        let Ok(mut answer) = serde_json::to_value(answer) else {
            return;
        };
        state.secrets.hide(&mut answer);
        let text = answer.to_string();
        let has_room = self.take(&mut state, text.len());
        if let Some(call) = state.calls.get_mut(place) {
            call.ms = millis(now.saturating_duration_since(call.began));
            if let Some(digest) = digest {
                call.ask.digest = digest;
            }
            call.answer = has_room.then(|| text.into());
        }
    }

    /// The attempt has ended well: nothing is kept.
    pub fn clear(&self) {
        let state = std::mem::take(&mut *self.lock());
        self.budget.give(state.size);
    }

    /// The attempt has ended like this: its recording. `None` = there was no room for one.
    pub fn finish(&self, ended: &Ended, fresh: bool) -> Option<Kept> {
        let mut state = std::mem::take(&mut *self.lock());
        let size = std::mem::take(&mut state.size);
        let text = (size > 0).then(|| self.text(state, ended, fresh)).flatten();
        let kept = text.map(|text| Kept::new(text.into(), size, &self.budget));
        if kept.is_none() {
            self.budget.give(size);
        }
        kept
    }

    fn text(&self, mut state: Taped, ended: &Ended, fresh: bool) -> Option<String> {
        let differences = |values: &Vec<u64>| {
            let mut last = None;
            let next = |value: &u64| difference(last.replace(*value), *value);
            values.iter().map(next).collect()
        };
        let readings = state.readings.iter();
        let readings = readings.map(|(kind, all)| (*kind, differences(all)));
        let readings = readings.collect();
        let mut ended = serde_json::to_value(ended).ok()?;
        state.secrets.hide(&mut ended);
        let ended: Ended = serde_json::from_value(ended).ok()?;
        let written = Written {
            version: VERSION,
            head: &self.head,
            ended: &ended,
            fresh,
            left_out: state.left_out,
            hidden: &state.secrets.hidden,
            readings,
        };
        let mut text = serde_json::to_string(&written).ok()?;
        text.pop();
        text.push_str(",\"calls\":[");
        for (number, call) in state.calls.into_iter().enumerate() {
            let at = call.began.saturating_duration_since(self.began);
            let exchange = Exchange {
                ask: call.ask,
                at_ms: millis(at),
                ms: call.ms,
                answer: Value::Null,
            };
            let mut exchange = serde_json::to_string(&exchange).ok()?;
            if let Some(answer) = &call.answer {
                exchange.truncate(exchange.len() - "null}".len());
                exchange.push_str(answer);
                exchange.push('}');
            }
            text.push_str(if number == 0 { "" } else { "," });
            text.push_str(&exchange);
        }
        text.push_str("]}");
        Some(text)
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.budget.give(self.lock().size);
    }
}

/// From the last reading to this one.
fn difference(last: Option<u64>, value: u64) -> i64 {
    value.wrapping_sub(last.unwrap_or(0)).cast_signed()
}

/// Gives the answers of a recording again.
pub struct Player {
    seed: String,
    blocks: AtomicU64,
    /// Told of each call: its number, the call, and its answer.
    on_call: Option<Watch>,
    state: Mutex<Playing>,
}

/// Is told of each call: its number from 1, the call, and its recorded answer.
pub type Watch = Box<dyn Fn(usize, &Ask, Option<&Exchange>) + Send + Sync>;

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Playing {
    readings: BTreeMap<Reading, (Vec<u64>, usize)>,
    calls: Vec<(Exchange, bool)>,
    secrets: BTreeSet<String>,
    made: usize,
    differences: Vec<Difference>,
    beyond: u64,
}

/// Something that an attempt did otherwise than the recorded one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// A call that is not recorded, or has no recorded answer: its number from 1, and what is recorded there.
    Unrecorded(usize, String, Option<String>),
    /// A recorded call that it did not make.
    NotMade(usize, String),
}

/// What became of the answers of a recording.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The differences, in order.
    pub differences: Vec<Difference>,
    /// How often a clock was read beyond the recording.
    pub beyond: u64,
    /// The names of the secrets that it read: it got other texts.
    pub secrets: BTreeSet<String>,
}

impl Player {
    /// For a new run of the recorded attempt.
    pub fn new(recording: &Recording, on_call: Option<Watch>) -> Self {
        let readings = recording.readings.iter().map(|(kind, differences)| {
            let mut last = 0_u64;
            let add = |difference: &i64| {
                last = last.wrapping_add(difference.cast_unsigned());
                last
            };
            (*kind, (differences.iter().map(add).collect(), 0))
        });
        let calls = recording.calls.iter().map(|call| (call.clone(), false));
        Self {
            seed: recording.head.seed.clone(),
            blocks: AtomicU64::new(0),
            on_call,
            state: Mutex::new(Playing {
                readings: readings.collect(),
                calls: calls.collect(),
                ..Playing::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Playing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading(&self, kind: Reading) -> u64 {
        let mut state = self.lock();
        let (values, read) = state.readings.entry(kind).or_default();
        let found = values.get(*read).copied();
        *read += 1;
        let last = values.last().copied().unwrap_or(0);
        let past = (*read).saturating_sub(values.len()) as u64;
        let ticks = matches!(kind, Reading::WallClock | Reading::Monotonic);
        found.unwrap_or_else(|| {
            state.beyond += 1;
            last + if ticks { past * BEYOND } else { 0 }
        })
    }

    /// The recorded answer to a call: of the first equal one that has not been made; `None` = there is none.
    pub fn next(&self, ask: &Ask) -> Option<Value> {
        let mut state = self.lock();
        state.made += 1;
        let number = state.made;
        // A call that had no answer may have ended before it was whole.
        let is_it = |(call, made): &(Exchange, bool)| {
            let recorded = &call.ask;
            let is_whole = !recorded.digest.is_empty();
            !made && recorded.shown == ask.shown && (!is_whole || recorded.digest == ask.digest)
        };
        let found = state.calls.iter().position(is_it);
        let place = found.unwrap_or(number - 1);
        let recorded = state.calls.get(place).map(|(call, _)| call.clone());
        let answer = match (found, &recorded) {
            (Some(place), Some(call)) => {
                state.calls[place].1 = true;
                Some(call.answer.clone()).filter(|answer| !answer.is_null())
            }
            _ => None,
        };
        if answer.is_none() && state.differences.len() < NOTED_MAX {
            let instead = recorded.as_ref().filter(|_| found.is_none());
            let instead = instead.map(|call| call.ask.shown.clone());
            let shown = ask.shown.clone();
            let difference = Difference::Unrecorded(number, shown, instead);
            state.differences.push(difference);
        }
        drop(state);
        if let Some(watch) = &self.on_call {
            watch(number, ask, recorded.as_ref().filter(|_| found.is_some()));
        }
        answer
    }

    /// What became of it.
    pub fn played(&self) -> Played {
        let state = self.lock();
        let mut differences = state.differences.clone();
        let left = state
            .calls
            .iter()
            .enumerate()
            .filter(|(_, (_, made))| !made);
        let left =
            left.map(|(place, (call, _))| Difference::NotMade(place + 1, call.ask.shown.clone()));
        differences.extend(left.take(NOTED_MAX));
        Played {
            differences,
            beyond: state.beyond,
            secrets: state.secrets.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
