//! Values and their counts: for a stream, Redis itself keeps the counts.
//!
//! `x-retry-count` is the number of starts charged to the message; `x-hostler-crashes`, how many
//! hosts have died holding it since its last answer. A suspect may run isolated, at the cost of all other
//! messages: so the second one counts only in a value that a host wrote where producers do not write
//! ([`Form::marked`]): on a processing list, and on the retry list. The ledger gets:
//!
//! | the value says | header | native | origin |
//! |---|---|---|---|
//! | no start, no crash | 0 | 1 | fresh: its hand-out stands for its first start |
//! | n starts, no crash | n | 0 | returned: every start of it is recorded |
//! | n starts, a crash | 0 | n | orphan: a suspect |
//!
//! Under exact accounting the native count runs one ahead of the starts, as it does on a stream.
//!
//! A value says how often it was held, too. Its starts are those that are charged; the native count also has the held ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::token::{Form, Token};
use crate::delivery::attempt::Accounting;
use crate::delivery::hold::Held;
use crate::delivery::message::{
    EXPIRES_AT, Headers, MESSAGE_ID, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS, RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
};
use crate::delivery::millis::millis;
use crate::queue::{Claim, Origin};
use crate::redis::ServerTime;
use crate::wire::dead_letter::{CRASHES, HELD, JOURNAL, RECORDS};
use crate::wire::decoded::message_id;
use crate::wire::list::{self, Framing};
use crate::wire::{Raw, frame, held, journal};

/// How the values of a queue are read and written.
#[derive(Debug)]
pub(super) struct Values {
    /// The queue's name, as messages carry it.
    pub(super) name: Arc<str>,
    pub(super) framing: Framing,
    pub(super) accounting: Accounting,
    /// Whether messages have journals.
    pub(super) journals: bool,
    /// How long after its first claim a message is worth handling.
    pub(super) ttl: AtomicTtl,
    /// The time of day.
    pub(super) time: Arc<ServerTime>,
}

/// A time to live that rules may change, for later claims.
#[derive(Debug)]
pub(super) struct AtomicTtl(AtomicU64);

/// No message has this number of milliseconds to live.
const FOR_EVER: u64 = u64::MAX;

impl AtomicTtl {
    pub(super) fn new(ttl: Option<Duration>) -> Self {
        Self(AtomicU64::new(ttl.map_or(FOR_EVER, millis)))
    }

    pub(super) fn set(&self, ttl: Option<Duration>) {
        let ttl = ttl.map_or(FOR_EVER, millis);
        self.0.store(ttl, Ordering::Relaxed);
    }

    /// In milliseconds.
    fn now(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ttl| *ttl != FOR_EVER)
    }
}

/// A value to put back, and its form.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Written {
    pub(super) value: Bytes,
    pub(super) form: Form,
}

/// A delivery that goes back.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Back {
    /// It was not charged here: the same value. If it has run, it carries its id.
    Unchanged(Written),
    /// It was charged, or held: the value with the new count.
    Charged(Written),
}

impl Values {
    /// A claimed value; `idle` if its host died.
    pub(super) fn claim(&self, token: Token, value: Bytes, idle: Option<Duration>) -> Claim {
        let framing = self.framing_of(token);
        let mut decoded = list::decode(&self.name, &token.to_string(), 0, &value, framing);
        let starts = decoded.header;
        let crashes = crashes(token, &decoded.message.headers).min(starts);
        if decoded.message.headers.find(RECORDS).is_some() {
            decoded.message.headers.remove(RECORDS);
        }
        if crashes == 0 {
            // A producer's: the handler need not wonder.
            decoded.message.headers.remove(CRASHES);
        }
        let held = decoded.message.headers.find_str(HELD);
        let held = held.map(held::of_header).unwrap_or_default();
        if held.count > 0 {
            decoded.message.headers.remove(HELD);
        }
        let (header, native, origin) = match (starts, crashes) {
            (0, _) => (0, 1, Origin::Fresh),
            (_, 0) => (starts, 0, Origin::Returned),
            _ => {
                let idle = idle.unwrap_or_default();
                (
                    0,
                    starts.saturating_add(self.ahead()),
                    Origin::Orphan { idle },
                )
            }
        };
        if let Some(idle) = idle {
            let headers = &mut decoded.message.headers;
            headers.set(REDIS_DELIVERY_COUNT, starts.to_string());
            headers.set(REDIS_IDLE_MS, idle.as_millis().to_string());
        }
        Claim {
            id: token.id(),
            origin,
            native: native.saturating_add(held.count),
            header,
            expires_at_ms: self
                .ttl
                .now()
                .map(|ttl| expires_at(&decoded.message.headers, self.time.now_ms(), ttl)),
            message: decoded.message,
            raw: Raw::Value(value),
            defect: decoded.defect,
            is_duplicate: false,
            reserved_ms: None,
            held,
        }
    }

    /// The starts charged in all to a delivery with this native count.
    pub(super) fn starts(&self, claim: &Claim, native: u32) -> u32 {
        claim
            .header
            .saturating_add(native.saturating_sub(self.ahead().saturating_add(claim.held.count)))
    }

    /// The starts charged to a delivery before it was claimed.
    pub(super) fn starts_before(&self, claim: &Claim) -> u32 {
        match claim.origin {
            Origin::Fresh => 0,
            Origin::Returned | Origin::Orphan { .. } => self.starts(claim, claim.native),
        }
    }

    /// A delivery that goes back with this native count, and whether a handler has run it here.
    pub(super) fn back(
        &self,
        claim: &Claim,
        keep: u32,
        has_run: bool,
    ) -> Result<Back, frame::Error> {
        let token = Token::of(claim.id);
        let (starts, before) = (self.starts(claim, keep), self.starts_before(claim));
        if starts <= before {
            let headers = &claim.message.headers;
            if has_run && (message_id(headers).is_none() || self.is_unnamed(headers)) {
                // Its idempotency key stays the same: both are made of its id. And it keeps its journal.
                let crashes = crashes(token, headers);
                let expires = claim.expires_at_ms;
                if let Some(written) =
                    self.write(token, value_of(claim), (before, None), crashes, expires)?
                {
                    return Ok(Back::Unchanged(written));
                }
            }
            return Ok(Back::Unchanged(self.unchanged(token, claim)?));
        }
        // Its handler has answered: the message is not a suspect.
        match self.write(
            token,
            value_of(claim),
            (starts, None),
            0,
            claim.expires_at_ms,
        )? {
            Some(written) => Ok(Back::Charged(written)),
            None => Ok(Back::Unchanged(self.unchanged(token, claim)?)),
        }
    }

    /// A delivery that its handler holds in this attempt: the start is not charged.
    pub(super) fn held(&self, claim: &Claim, attempt: u32) -> Result<Back, frame::Error> {
        let token = Token::of(claim.id);
        let held = Held {
            count: claim.held.count.saturating_add(1),
            since_ms: match claim.held.count {
                0 => self.time.now_ms(),
                _ => claim.held.since_ms,
            },
        };
        let counts = (attempt.saturating_sub(1), Some(held));
        match self.write(token, value_of(claim), counts, 0, claim.expires_at_ms)? {
            Some(written) => Ok(Back::Charged(written)),
            None => Ok(Back::Unchanged(self.unchanged(token, claim)?)),
        }
    }

    /// A delivery that waits for the start that its limits have reserved for it: framed, as all delayed values are. `None` if
    /// it is malformed.
    pub(super) fn put_off(&self, claim: &Claim) -> Result<Option<Written>, frame::Error> {
        let counts = (self.starts_before(claim), None);
        let expires = claim.expires_at_ms;
        self.write(Token::of(claim.id), value_of(claim), counts, 0, expires)
    }

    /// A value that is taken over from another instance; `recorded` = starts charged to it there, if
    /// one was recorded. Without a record, only a value that came there fresh may have started.
    pub(super) fn recovered(
        &self,
        token: Token,
        value: Bytes,
        recorded: Option<u32>,
    ) -> Result<Written, frame::Error> {
        let Some((headers, _)) = list::parts(&value, self.framing_of(token)) else {
            return Ok(self.as_it_stands(token, value));
        };
        let starts = headers.retry_count();
        let unrecorded = match starts {
            0 => 1 - self.ahead(),
            _ => starts,
        };
        let charged = recorded.unwrap_or(unrecorded).max(starts);
        if charged == starts && !self.is_unnamed(&headers) {
            return Ok(self.as_it_stands(token, value));
        }
        let died = u32::from(charged > starts);
        let crashes = crashes(token, &headers).min(starts).saturating_add(died);
        let written = self.write(token, &value, (charged, None), crashes, None)?;
        Ok(written.unwrap_or_else(|| self.as_it_stands(token, value)))
    }

    /// A value that is taken over unchanged.
    pub(super) fn as_it_stands(&self, token: Token, value: Bytes) -> Written {
        let form = self.form_of(token);
        Written { value, form }
    }

    /// Headers and payload of a claimed value; a malformed one is all payload.
    pub(super) fn parts(&self, claim: &Claim) -> (Headers, Bytes) {
        let value = value_of(claim);
        list::parts(value, self.framing_of(Token::of(claim.id)))
            .unwrap_or_else(|| (Headers::default(), value.clone()))
    }

    /// The value with other counts (its holds are as they were, if none are given), the id that stays with the message, and when it expires; `None`
    /// if it is malformed, and has no place for them.
    fn write(
        &self,
        token: Token,
        value: &Bytes,
        (starts, held): (u32, Option<Held>),
        crashes: u32,
        expires_at_ms: Option<u64>,
    ) -> Result<Option<Written>, frame::Error> {
        let Some((mut headers, payload)) = list::parts(value, self.framing_of(token)) else {
            return Ok(None);
        };
        if message_id(&headers).is_none() {
            headers.set(MESSAGE_ID, token.to_string());
        }
        if self.is_unnamed(&headers) {
            headers.set(JOURNAL, token.to_string());
        }
        if let Some(at) = expires_at_ms {
            headers.set(EXPIRES_AT, at.to_string());
        }
        if starts > 0 {
            headers.set(RETRY_COUNT, starts.to_string());
            headers.set(RUSTSTREAM_RETRY_COUNT, starts.to_string());
        }
        headers.remove(CRASHES);
        if crashes > 0 {
            headers.push(CRASHES, crashes.to_string());
        }
        if let Some(held) = held {
            headers.set(HELD, held::header(held));
        }
        let value = match list::encode(&headers, &payload, self.framing.codec()) {
            Ok(value) => value,
            Err(list::Error::Frame(error)) => return Err(error),
            // Only a raw codec refuses headers, and none of ours is.
            Err(list::Error::Headers(_)) => return Ok(None),
        };
        let form = Form {
            framed: self.framing == Framing::Raw,
            marked: crashes > 0,
        };
        Ok(Some(Written { value, form }))
    }

    /// Whether nothing says yet how the journal of a message is called, which may have one.
    fn is_unnamed(&self, headers: &Headers) -> bool {
        self.journals && journal_in(headers).is_none()
    }

    /// The records that a value holds of its message.
    pub(super) fn carried(&self, claim: &Claim) -> BTreeMap<u32, Bytes> {
        let (headers, _) = self.parts(claim);
        headers
            .find(RECORDS)
            .map(journal::records)
            .unwrap_or_default()
    }

    /// The same value. It is marked if it is a suspect: then it must not go where producers write.
    fn unchanged(&self, token: Token, claim: &Claim) -> Result<Written, frame::Error> {
        let mut value = value_of(claim).clone();
        let mut form = self.form_of(token);
        if form.framed
            && !form.marked
            && let Some((mut headers, payload)) = frame::decode(&value)
            && headers.find(CRASHES).is_some()
        {
            // It goes where the count of a producer would be taken for that of a host.
            headers.remove(CRASHES);
            value = frame::encode(&headers, &payload)?;
        }
        form.marked = matches!(claim.origin, Origin::Orphan { .. });
        Ok(Written { value, form })
    }

    fn form_of(&self, token: Token) -> Form {
        let form = token.form();
        Form {
            framed: self.framing == Framing::Raw && form.framed,
            ..form
        }
    }

    fn framing_of(&self, token: Token) -> Framing {
        if self.form_of(token).framed {
            Framing::Frame
        } else {
            self.framing
        }
    }

    /// By how much native counts run ahead of the starts.
    fn ahead(&self) -> u32 {
        u32::from(self.accounting == Accounting::Exact)
    }
}

/// What a host has written about how the journal of a message is called.
fn journal_in(headers: &Headers) -> Option<&str> {
    headers
        .find_str(JOURNAL)
        .filter(|id| Token::parse(id).is_some())
}

/// How the journal of a delivery is called: as the token that the message had first.
pub(super) fn journal_of(claim: &Claim) -> String {
    let known = journal_in(&claim.message.headers);
    known.map_or_else(|| Token::of(claim.id).to_string(), str::to_owned)
}

/// When a message that is claimed now expires: after its first claim, it says so itself.
fn expires_at(headers: &Headers, now_ms: u64, ttl: u64) -> u64 {
    let by_ttl = now_ms.saturating_add(ttl);
    let by_header = headers.find_number(EXPIRES_AT);
    by_header.map_or(by_ttl, |at| at.min(by_ttl))
}

/// The value of a claim as it stands in Redis.
pub(super) fn value_of(claim: &Claim) -> &Bytes {
    static NONE: Bytes = Bytes::new();
    match &claim.raw {
        Raw::Value(value) => value,
        // Only a stream's claims have fields.
        Raw::Fields(_) => &NONE,
    }
}

/// The value of a larger entry is not sent to name it: a slow link would carry it twice, and with the token
/// before it, it may be more than Redis takes. The script then looks for the token, which costs more.
const NAMED_MIN: usize = 32 << 10;

/// The name of its entry on the processing list: the entry itself; or its token, if it is large.
pub(super) fn name_of(claim: &Claim) -> Vec<u8> {
    named(Token::of(claim.id), value_of(claim))
}

/// The same of an entry with this token and value.
pub(super) fn named(token: Token, value: &[u8]) -> Vec<u8> {
    match value.len() {
        NAMED_MIN.. => token.0.to_vec(),
        _ => token.entry(value),
    }
}

/// How many hosts have died with a message, if a host says so.
fn crashes(token: Token, headers: &Headers) -> u32 {
    let said = headers.find_number(CRASHES);
    let said = said.filter(|_| token.form().marked);
    said.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
