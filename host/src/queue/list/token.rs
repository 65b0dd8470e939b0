//! Tokens: the ids of the entries of a processing list, equal payloads among them.
//!
//! A token is 8 random bytes of this start of the host and a number that counts up. The last bits of the
//! random bytes say how the value behind it is read: see [`Form`]. The number is at least the time, so it says when
//! its value was taken.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::delivery::message::{DeliveryId, MESSAGE_ID, TIME_MIN_MS};
use crate::wire::list::{self, Framing};

/// How many bytes a token has.
pub(super) const TOKEN_LEN: usize = 16;
/// How many moments are remembered with the number that was next then.
const MOMENTS_MAX: usize = 64;
/// How many of them fall into the age of [`Tokens::new`]: the rest reach back beyond it, however often
/// tokens are given out.
const MOMENTS_PER_AGE: u32 = 32;

/// This number of bits of each number counts up within a millisecond.
const WITHIN_MS: u32 = 11;
/// Numbers go on from here without the time: scripts count exactly up to 2^53.
const TIMED_MAX: u64 = (1 << 53) - (1 << 50);
/// How much of the beginning of an entry holds the headers that hosts write first, in most.
const HEADERS_MAX: usize = 4 << 10;

/// How the value behind a token is read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Form {
    /// It is framed, in a list of raw values.
    pub(super) framed: bool,
    /// A host wrote it, where no producer writes: its count of crashes is a host's.
    pub(super) marked: bool,
}

const FRAMED: u8 = 1;
const MARKED: u8 = 2;

impl Form {
    /// The form of values of the retry list: only hosts write there.
    pub(super) const RETRY: Self = Self {
        framed: true,
        marked: true,
    };

    fn bits(self) -> u8 {
        (u8::from(self.framed) * FRAMED) | (u8::from(self.marked) * MARKED)
    }
}

/// The token of a delivery.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Token(pub(super) [u8; TOKEN_LEN]);

impl Token {
    /// The token at the beginning of an entry, and its value behind it.
    pub(super) fn split(entry: &[u8]) -> Option<(Self, &[u8])> {
        let (token, value) = entry.split_first_chunk::<TOKEN_LEN>()?;
        Some((Self(*token), value))
    }

    /// The token of a delivery of a reliable list.
    pub fn of(id: DeliveryId) -> Self {
        Self(id.0.to_be_bytes())
    }

    /// The delivery.
    pub fn id(self) -> DeliveryId {
        DeliveryId(u128::from_be_bytes(self.0))
    }

    /// How its value is read.
    pub(super) fn form(self) -> Form {
        Form {
            framed: self.0[7] & FRAMED != 0,
            marked: self.0[7] & MARKED != 0,
        }
    }

    /// Its entry on a processing list.
    pub(super) fn entry(self, value: &[u8]) -> Vec<u8> {
        [&self.0[..], value].concat()
    }

    /// The token that [`fmt::Display`] has written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let id = u128::from_str_radix(text, 16).ok()?;
        let token = Self::of(DeliveryId(id));
        (token.to_string() == text).then_some(token)
    }

    /// When its value was taken, in epoch milliseconds; `None` = it is a token of a host that did not write it.
    fn taken_ms(self) -> Option<u64> {
        let at = self.number() >> WITHIN_MS;
        (at >= TIME_MIN_MS).then_some(at)
    }

    fn number(self) -> u64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(number)
    }
}

/// Hexadecimal: the id of a message that carries none.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.id().0)
    }
}

/// How much of an entry [`first_taken_ms`] reads.
pub(in crate::queue) const BEGINNING: usize = TOKEN_LEN + HEADERS_MAX;

/// When the value of an entry was first taken off its list, in epoch milliseconds: the beginning of the entry says so.
/// A value that other hosts have held has the token of the first one as the id of the message.
pub(in crate::queue) fn first_taken_ms(entry: &Bytes) -> Option<u64> {
    let (token, _) = Token::split(entry)?;
    let headers = list::parts(&entry.slice(TOKEN_LEN..), Framing::Json).map(|(headers, _)| headers);
    let first = headers.and_then(|headers| Token::parse(headers.find_str(MESSAGE_ID)?)?.taken_ms());
    first.into_iter().chain(token.taken_ms()).min()
}

/// The tokens of this start of the host.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The first half, with the bits of the form 0.
    first: u64,
    /// How far apart the moments are that are remembered.
    spacing: Duration,
    issued: Mutex<Issued>,
}

#[derive(Debug)]
struct Issued {
    next: u64,
    /// Numbers of calls that are under way: from, until.
    open: Vec<(u64, u64)>,
    /// The next number at some moments, oldest first.
    moments: VecDeque<(Instant, u64)>,
    /// When a call last ended without an answer, or a delivery was let go.
    unanswered: Option<Instant>,
}

/// Numbers for one call. Dropped without an answer: their deliveries may be claimed, unknown to us.
pub(super) struct Reserved<'a> {
    tokens: &'a Tokens,
    first: u64,
    answered: bool,
}

impl Issued {
    /// Remember the next number, unless the last such moment is too near.
    fn note(&mut self, now: Instant, spacing: Duration) {
        let last = self.moments.back();
        if last.is_some_and(|(at, _)| now.saturating_duration_since(*at) < spacing) {
            return;
        }
        if self.moments.len() == MOMENTS_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back((now, self.next));
    }

    /// Whether this number was given out at least `age` ago.
    fn is_old(&self, number: u64, now: Instant, age: Duration) -> bool {
        self.moments
            .iter()
            .rev()
            .find(|(at, _)| now.saturating_duration_since(*at) >= age)
            .is_some_and(|(_, next)| number < *next)
    }
}

impl Tokens {
    /// Tokens that will be asked whether they are older than this.
    pub(super) fn new(age: Duration) -> Self {
        Self {
            first: fastrand::u64(..) & !u64::from(FRAMED | MARKED),
            spacing: age / MOMENTS_PER_AGE,
            issued: Mutex::new(Issued {
                next: 1,
                open: Vec::new(),
                moments: VecDeque::new(),
                unanswered: None,
            }),
        }
    }

    /// The first half of tokens for values of this form.
    pub(super) fn prefix(&self, form: Form) -> [u8; 8] {
        (self.first | u64::from(form.bits())).to_be_bytes()
    }

    /// Numbers for at most `count` deliveries, at this time.
    pub(super) fn reserve(&self, count: usize, now_ms: u64) -> Reserved<'_> {
        let count = count as u64;
        let mut issued = self.issued.lock();
        let timed = now_ms.saturating_mul(1 << WITHIN_MS).min(TIMED_MAX);
        issued.next = issued.next.max(timed);
        let first = issued.next;
        issued.next += count;
        issued.open.push((first, first + count));
        issued.note(Instant::now(), self.spacing);
        Reserved {
            tokens: self,
            first,
            answered: false,
        }
    }

    /// A delivery of this start may be unknown to us.
    pub(super) fn doubt(&self) {
        self.issued.lock().unanswered = Some(Instant::now());
    }

    /// Whether a call ended without an answer, or a delivery was let go: then a delivery may be claimed, unknown to us. No doubt
    /// ends by itself: see [`Tokens::settle_doubt`].
    pub(super) fn is_in_doubt(&self) -> bool {
        self.issued.lock().unanswered.is_some()
    }

    /// A look that began at this time found no unknown delivery: it ends the doubt about calls that were given up this long
    /// before.
    pub(super) fn settle_doubt(&self, looked: Instant, within: Duration) {
        let mut issued = self.issued.lock();
        let is_over = |at: &Instant| looked.saturating_duration_since(*at) >= within;
        issued.unanswered = issued.unanswered.filter(|at| !is_over(at));
    }

    /// Whether this is one of ours, given out at least `age` ago by a call that has ended.
    pub(super) fn is_settled(&self, token: Token, age: Duration) -> bool {
        let mut issued = self.issued.lock();
        let (number, now) = (token.number(), Instant::now());
        // Numbers given out since the last moment grow old without another call as well.
        issued.note(now, self.spacing);
        let is_open = issued.open.iter().any(|(a, b)| (*a..*b).contains(&number));
        issued.is_old(number, now, age) && !is_open
    }
}

impl Reserved<'_> {
    /// The first number.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The token of a number of the call.
    pub(super) fn token(&self, offset: usize, form: Form) -> Token {
        let mut token = [0; TOKEN_LEN];
        token[..8].copy_from_slice(&self.tokens.prefix(form));
        token[8..].copy_from_slice(&(self.first + offset as u64).to_be_bytes());
        Token(token)
    }

    /// The call was answered: its claims are known.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut issued = self.tokens.issued.lock();
        issued.open.retain(|(first, _)| *first != self.first);
        if !self.answered {
            issued.unanswered = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::Headers;
    use crate::wire::list::Codec;

    #[test]
    fn tokens_are_told_apart_and_say_what_is_behind_them() {
        let tokens = Tokens::new(Duration::ZERO);
        let reserved = tokens.reserve(2, 0);
        let all = [false, true].map(|framed| [false, true].map(|marked| Form { framed, marked }));
        for form in all.into_iter().flatten() {
            assert_eq!(reserved.token(0, form).form(), form);
        }
        let plain = reserved.token(0, Form::default());
        assert_ne!(plain, reserved.token(1, Form::default()));
        assert_ne!(plain, reserved.token(0, Form::RETRY));
        assert_eq!(Token::of(plain.id()), plain);
        assert_eq!(plain.to_string().len(), 32);
        let entry = plain.entry(b"value");
        assert_eq!(Token::split(&entry), Some((plain, &b"value"[..])));
        assert_eq!(Token::split(&entry[..15]), None);
        reserved.answered();
        assert_ne!(tokens.reserve(1, 0).token(0, Form::default()), plain);
    }

    #[test]
    fn a_value_says_when_it_was_first_taken_also_in_other_hands() {
        let at = 1_795_560_295_925;
        let entry = |token: Token, value: &[u8]| Bytes::from(token.entry(value));
        let token = |now_ms| {
            Tokens::new(Duration::ZERO)
                .reserve(9, now_ms)
                .token(8, Form::RETRY)
        };
        let (first, later) = (token(at), token(at + 60_000));
        assert_eq!(first_taken_ms(&entry(first, b"value")), Some(at));
        let mut headers = Headers::default();
        headers.push("x-retry-count", "1");
        headers.push(MESSAGE_ID, first.to_string());
        for codec in [Codec::Frame, Codec::Json] {
            let value = list::encode(&headers, &Bytes::from_static(b"{}"), codec).unwrap();
            assert_eq!(first_taken_ms(&entry(later, &value)), Some(at));
            // A host of an earlier release has it.
            assert_eq!(first_taken_ms(&entry(token(0), &value)), Some(at));
        }
        assert_eq!(first_taken_ms(&entry(token(0), b"value")), None);
        assert_eq!(first_taken_ms(&Bytes::from_static(b"short")), None);
        // The producer's own id is no time.
        headers.set(MESSAGE_ID, "7");
        let value = list::encode(&headers, &Bytes::new(), Codec::Frame).unwrap();
        assert_eq!(first_taken_ms(&entry(later, &value)), Some(at + 60_000));
        // A clock that is wrong by centuries does not make numbers that a script cannot count.
        let tokens = Tokens::new(Duration::ZERO);
        drop(tokens.reserve(1, u64::MAX));
        let last = tokens.reserve(1, at).token(0, Form::RETRY);
        assert_eq!(last.number(), TIMED_MAX + 1);
    }

    #[test]
    fn tokens_of_a_call_under_way_are_not_settled() {
        let tokens = Tokens::new(Duration::ZERO);
        let under_way = tokens.reserve(5, 0);
        let token = under_way.token(4, Form::default());
        assert!(!tokens.is_settled(token, Duration::ZERO));
        under_way.answered();
        assert!(!tokens.is_in_doubt());
        assert!(tokens.is_settled(token, Duration::ZERO));
        assert!(!tokens.is_settled(token, Duration::from_secs(60)));
        drop(tokens.reserve(1, 0));
        assert!(tokens.is_in_doubt());
        // A look too early says nothing about a call that the server may still carry out.
        let (now, doubt) = (Instant::now(), Duration::from_secs(60));
        tokens.settle_doubt(now, doubt);
        assert!(tokens.is_in_doubt());
        tokens.settle_doubt(now + doubt, doubt);
        assert!(!tokens.is_in_doubt());
    }

    #[test]
    fn the_age_of_a_token_is_known_at_any_rate_of_calls() {
        let age = Duration::from_secs(15);
        let (start, pause) = (Instant::now(), Duration::from_millis(100));
        let tokens = Tokens::new(age);
        let mut issued = tokens.issued.lock();
        for call in 0..3_000_u32 {
            issued.next += 1;
            let now = start + pause * call;
            issued.note(now, tokens.spacing);
            let number_at = |ago: Duration| {
                let then = (now - start).checked_sub(ago)?;
                u64::try_from(then.as_millis() / pause.as_millis())
                    .ok()
                    .map(|n| n + 1)
            };
            // To the next moment, late; never early.
            if let Some(number) = number_at(age + 2 * tokens.spacing + pause) {
                assert!(issued.is_old(number, now, age), "call {call}");
            }
            if let Some(number) = number_at(age.saturating_sub(pause)) {
                assert!(!issued.is_old(number, now, age), "call {call}");
            }
        }
        assert!(issued.moments.len() <= MOMENTS_MAX);
    }
}
