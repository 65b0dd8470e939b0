//! Entries of a stream, taken out of a reply while it arrives.
//!
//! The size of an entry is not known before it is read. A script that reads entries can stop after a number of
//! bytes, but each entry costs Redis three times as much. So where entries were small so far, a plain command reads
//! them, and the host keeps the bound: it parses the reply as it arrives, and of an entry that is too large it keeps
//! only the id. The parts of all entries share the memory of the reply.

use std::mem;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes, BytesMut};

/// An entry: its id, and its fields.
type Entry = (Bytes, Vec<(Bytes, Bytes)>);

/// The entries of a reply, in one piece of memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entries {
    memory: Vec<u8>,
    /// The ids, and the names and values of fields; how many of them each entry has.
    parts: Vec<Range<usize>>,
    counts: Vec<usize>,
    /// The ids of entries that were too large.
    pub skipped: Vec<Bytes>,
    /// How many bytes of these have arrived.
    skipped_bytes: usize,
}

impl Entries {
    /// The bytes that have arrived.
    pub fn size(&self) -> usize {
        self.memory.len() + self.skipped_bytes
    }

    /// What they take, with what the host keeps beside their bytes.
    pub fn held(&self) -> usize {
        self.memory.len() + beside(self.parts.len(), self.counts.len())
    }

    /// The entries. `memory` is what their parts share: it is passed through `hold`.
    pub fn read(self, hold: impl FnOnce(Bytes) -> Bytes) -> impl Iterator<Item = Entry> {
        let mut memory = self.memory;
        memory.shrink_to_fit();
        let memory = hold(memory.into());
        let mut parts = self.parts.into_iter().map(move |part| memory.slice(part));
        self.counts.into_iter().map(move |count| {
            let id = parts.next().unwrap_or_default();
            let mut fields = Vec::with_capacity(count / 2);
            for _ in 0..count / 2 {
                fields.extend(parts.next().zip(parts.next()));
            }
            (id, fields)
        })
    }
}

/// What a name or a value of a field takes beside its bytes: where it is in the memory, a handle of it in the
/// message, and another one in its headers. Scripts count the same.
pub const PART_HELD: usize = 96;
/// What an entry takes beside its fields.
pub const ENTRY_HELD: usize = 64;

/// The memory that `parts` parts and `entries` entries take beside their bytes.
fn beside(parts: usize, entries: usize) -> usize {
    let parts = parts.saturating_mul(PART_HELD);
    parts.saturating_add(entries.saturating_mul(ENTRY_HELD))
}

/// The longest line that announces a value: a kind, and a number of 64 bits.
const LINE_MAX: usize = 32;
/// The most bytes of too large entries that one reply may have: they must not keep a slow connection busy for long.
const SKIPPED_MAX: usize = 16 << 20;
/// The memory that is kept from one reply to the next.
const BUFFER_KEPT: usize = 128 << 10;

/// What the client library gets instead of a reply whose entries were taken.
pub(super) const TAKEN: &[u8] = b"+OK\r\n";

/// A reply that is given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Unexpected {
    /// It is not what Redis answers to `XREADGROUP`.
    #[error("the reply is not a list of entries")]
    Shape,
    #[error("the reply has more than {} MiB of entries that are too large", SKIPPED_MAX >> 20)]
    TooLarge,
}

/// Takes entries out of replies, between a socket and the client library. It knows whether the next reply has some.
///
/// A connection that is asked for entries has no other command under way.
#[derive(Debug, Default)]
pub(super) struct Intake(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    /// Replies go to the client library.
    #[default]
    Passing,
    Reading(Reading),
    /// The entries of the last reply, until the caller takes them.
    Read(Entries),
    /// A caller asked for entries, and did not wait for them: the next reply may belong to that request.
    Lost,
}

/// A request for entries. When it is dropped before its end, the connection is of no more use.
pub(super) struct Request<'a>(&'a Intake);

impl Intake {
    /// The next reply has entries: keep at most about this many bytes of them.
    pub(super) fn begin(&self, limit: usize) -> Request<'_> {
        let mut state = self.state();
        if !matches!(*state, State::Lost) {
            *state = State::Reading(Reading::new(limit));
        }
        Request(self)
    }

    /// Take bytes that have arrived. Returns what the client library gets of them; `None` while the reply goes on.
    pub(super) fn take(&self, arrived: &mut BytesMut) -> Result<Option<Bytes>, Unexpected> {
        let mut state = self.state();
        let State::Reading(reading) = &mut *state else {
            return Ok(Some(arrived.split().freeze()));
        };
        if matches!(arrived.first(), Some(first) if reading.is_new() && !b"*%_$".contains(first)) {
            *state = State::Passing;
            return Ok(Some(arrived.split().freeze()));
        }
        if !reading.parse(arrived)? {
            return Ok(None);
        }
        let (entries, most) = (mem::take(&mut reading.entries), reading.most);
        *state = State::Read(entries);
        let rest = arrived.split();
        if most > BUFFER_KEPT {
            *arrived = BytesMut::new();
        }
        let mut reply = BytesMut::from(TAKEN);
        reply.extend_from_slice(&rest);
        Ok(Some(reply.freeze()))
    }

    /// Whether arriving bytes go to [`Intake::take`].
    pub(super) fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Reading(_))
    }

    /// Whether the next reply may belong to a request that was given up.
    pub(super) fn is_lost(&self) -> bool {
        matches!(*self.state(), State::Lost)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A state is replaced whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request<'_> {
    /// The client library has its reply: the entries, if the reply had some.
    pub(super) fn end(self) -> Option<Entries> {
        match mem::take(&mut *self.0.state()) {
            State::Read(entries) => Some(entries),
            _ => None,
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if !matches!(*state, State::Passing) {
            *state = State::Lost;
        }
    }
}

/// What comes next in a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// The streams: one, or nil.
    Streams,
    /// RESP2: a pair of the stream's key and its entries. RESP3 has a map.
    Pair,
    Key,
    Entries,
    Entry,
    Id,
    Fields,
    /// A name or a value of a field; this number of them is left.
    Part(usize),
    Nothing,
}

/// A reply of which some has arrived.
#[derive(Debug)]
struct Reading {
    limit: usize,
    next: Next,
    /// The length of the string that comes next, once that is known.
    string: Option<usize>,
    entries_left: usize,
    /// How far the entry is parsed that arrives.
    at: usize,
    /// Its parts: the id first.
    parts: Vec<Range<usize>>,
    /// What the host keeps beside the bytes of this entry and of those before it.
    beside: usize,
    /// It is too large.
    skips: bool,
    /// How many of the next bytes are thrown away.
    ignored: usize,
    /// The most bytes that were there at once.
    most: usize,
    /// The entries before it.
    entries: Entries,
}

impl Reading {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            next: Next::Streams,
            string: None,
            entries_left: 0,
            at: 0,
            parts: Vec::new(),
            beside: 0,
            skips: false,
            ignored: 0,
            most: 0,
            entries: Entries::default(),
        }
    }

    fn is_new(&self) -> bool {
        self.next == Next::Streams
    }

    /// Parse what has arrived. The parsed part of the entry that arrives stays there. Returns whether the reply
    /// is complete.
    fn parse(&mut self, arrived: &mut BytesMut) -> Result<bool, Unexpected> {
        self.most = self.most.max(arrived.len());
        loop {
            // Where bytes are ignored, nothing before them is left.
            let ignored = self.ignored.min(arrived.len());
            arrived.advance(ignored);
            self.ignored -= ignored;
            self.entries.skipped_bytes += ignored;
            if self.entries.skipped_bytes > SKIPPED_MAX {
                return Err(Unexpected::TooLarge);
            }
            if self.ignored > 0 {
                return Ok(false);
            }
            if self.next == Next::Nothing {
                return Ok(true);
            }
            if !self.step(arrived)? {
                return Ok(false);
            }
            if self.skips || matches!(self.next, Next::Entry | Next::Nothing) {
                arrived.advance(mem::take(&mut self.at));
            }
        }
    }

    /// Parse one value, or what announces it. Returns whether it has arrived.
    fn step(&mut self, arrived: &[u8]) -> Result<bool, Unexpected> {
        match self.next {
            Next::Streams => match self.line(arrived)? {
                None => return Ok(false),
                Some((b'*' | b'_' | b'$', None)) => self.next = Next::Nothing,
                Some((b'*', Some(1))) => self.next = Next::Pair,
                Some((b'%', Some(1))) => self.next = Next::Key,
                Some(_) => return Err(Unexpected::Shape),
            },
            Next::Pair | Next::Entry => match self.line(arrived)? {
                None => return Ok(false),
                Some((b'*', Some(2))) if self.next == Next::Pair => self.next = Next::Key,
                Some((b'*', Some(2))) => self.next = Next::Id,
                Some(_) => return Err(Unexpected::Shape),
            },
            Next::Key => match self.string(arrived)? {
                None => return Ok(false),
                Some(_) => self.next = Next::Entries,
            },
            Next::Entries => match self.line(arrived)? {
                None => return Ok(false),
                Some((b'*', Some(count))) => {
                    self.entries_left = count;
                    self.next_entry();
                }
                Some(_) => return Err(Unexpected::Shape),
            },
            Next::Id => match self.string(arrived)? {
                None => return Ok(false),
                Some(id) => {
                    self.parts.push(id);
                    self.next = Next::Fields;
                }
            },
            Next::Fields => match self.line(arrived)? {
                None => return Ok(false),
                Some((b'*', Some(count))) if count.is_multiple_of(2) => {
                    self.begin_parts(count, arrived);
                }
                // A map counts its pairs.
                Some((b'%', Some(count))) => {
                    let count = count.checked_mul(2).ok_or(Unexpected::Shape)?;
                    self.begin_parts(count, arrived);
                }
                Some(_) => return Err(Unexpected::Shape),
            },
            Next::Part(left) => {
                if self.string.is_none() {
                    match self.line(arrived)? {
                        None => return Ok(false),
                        Some((b'$', Some(length))) => self.string = Some(length),
                        Some(_) => return Err(Unexpected::Shape),
                    }
                    self.skip_if_too_large(arrived);
                }
                if self.skips {
                    // Its end, too.
                    self.ignored = self.string.take().unwrap_or_default().saturating_add(2);
                } else {
                    match self.string(arrived)? {
                        None => return Ok(false),
                        Some(part) => self.parts.push(part),
                    }
                }
                self.next = Next::Part(left - 1);
                self.end_of_part(arrived);
            }
            Next::Nothing => {}
        }
        Ok(true)
    }

    /// An entry that would make the reply twice as large as wanted is given up, unless it is the first: one
    /// entry is always read.
    fn skip_if_too_large(&mut self, arrived: &[u8]) {
        let bytes = self.entries.memory.len() + self.at;
        let bytes = bytes.saturating_add(self.string.unwrap_or_default());
        let all = bytes.saturating_add(self.beside);
        if !self.skips && !self.entries.counts.is_empty() && all > self.limit.saturating_mul(2) {
            self.skips = true;
            let id = self.parts.first().cloned().unwrap_or_default();
            self.entries
                .skipped
                .push(Bytes::copy_from_slice(&arrived[id]));
        }
    }

    fn begin_parts(&mut self, count: usize, arrived: &[u8]) {
        self.next = Next::Part(count);
        // Those that are still to come take memory as well.
        let parts = (self.entries.parts.len() + self.parts.len()).saturating_add(count);
        self.beside = beside(parts, self.entries.counts.len() + 1);
        // An entry without fields counts as well.
        self.skip_if_too_large(arrived);
        self.end_of_part(arrived);
    }

    fn end_of_part(&mut self, arrived: &[u8]) {
        if self.next != Next::Part(0) {
            return;
        }
        if !mem::take(&mut self.skips) {
            let entries = &mut self.entries;
            let before = entries.memory.len();
            entries.memory.extend_from_slice(&arrived[..self.at]);
            let parts = self.parts.iter();
            let moved = parts.map(|part| before + part.start..before + part.end);
            entries.counts.push(self.parts.len());
            entries.parts.extend(moved);
        }
        self.parts.clear();
        self.next_entry();
    }

    fn next_entry(&mut self) {
        self.next = match self.entries_left {
            0 => Next::Nothing,
            _ => Next::Entry,
        };
        self.entries_left = self.entries_left.saturating_sub(1);
    }

    /// A line: a kind, and a number; `None` = nil.
    fn line(&mut self, arrived: &[u8]) -> Result<Option<(u8, Option<usize>)>, Unexpected> {
        let rest = &arrived[self.at..];
        let Some(end) = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
            return match rest.len() < LINE_MAX {
                true => Ok(None),
                false => Err(Unexpected::Shape),
            };
        };
        let Some((kind, number)) = rest[..end]
            .strip_suffix(b"\r")
            .and_then(|line| line.split_first())
        else {
            return Err(Unexpected::Shape);
        };
        let number = match number {
            b"" | b"-1" => None,
            digits => Some(number_of(digits).ok_or(Unexpected::Shape)?),
        };
        self.at += end + 1;
        Ok(Some((*kind, number)))
    }

    /// A string, once all of it has arrived.
    fn string(&mut self, arrived: &[u8]) -> Result<Option<Range<usize>>, Unexpected> {
        let length = match self.string {
            Some(length) => length,
            None => match self.line(arrived)? {
                None => return Ok(None),
                Some((b'$', Some(length))) => length,
                Some(_) => return Err(Unexpected::Shape),
            },
        };
        self.string = Some(length);
        let end = self.at.checked_add(length).ok_or(Unexpected::Shape)?;
        match arrived.get(end..).and_then(|rest| rest.first_chunk()) {
            None => Ok(None),
            Some(b"\r\n") => {
                self.string = None;
                let string = self.at..end;
                self.at = end + 2;
                Ok(Some(string))
            }
            Some(_) => Err(Unexpected::Shape),
        }
    }
}

fn number_of(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0usize, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Plain = Vec<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

    fn string(out: &mut Vec<u8>, text: &[u8]) {
        out.extend(format!("${}\r\n", text.len()).into_bytes());
        out.extend(text);
        out.extend(b"\r\n");
    }

    /// As Redis answers, by RESP2 or RESP3.
    fn reply(entries: &Plain, resp3: bool) -> Vec<u8> {
        let mut out = if resp3 {
            b"%1\r\n".to_vec()
        } else {
            b"*1\r\n*2\r\n".to_vec()
        };
        string(&mut out, b"orders");
        out.extend(format!("*{}\r\n", entries.len()).into_bytes());
        for (id, fields) in entries {
            out.extend(b"*2\r\n");
            string(&mut out, id);
            out.extend(format!("*{}\r\n", 2 * fields.len()).into_bytes());
            for (name, value) in fields {
                string(&mut out, name);
                string(&mut out, value);
            }
        }
        out
    }

    /// The reply to another command, behind that with the entries.
    const BEHIND: &[u8] = b":7\r\n";

    /// The result if the reply arrives in pieces of `piece` bytes, and the most bytes that were held. The client
    /// library gets one short reply in its place, and the bytes behind it.
    fn arrives(
        reply: &[u8],
        limit: usize,
        piece: usize,
    ) -> Result<(Entries, Bytes, usize), Unexpected> {
        let intake = Intake::default();
        let request = intake.begin(limit);
        let (mut arrived, mut most) = (BytesMut::new(), 0);
        let bytes = [reply, BEHIND].concat();
        let mut left = bytes.chunks(piece);
        while let Some(piece) = left.next() {
            arrived.extend_from_slice(piece);
            let answer = intake.take(&mut arrived)?;
            let kept = match &*intake.state() {
                State::Reading(reading) => reading.entries.memory.len(),
                _ => 0,
            };
            most = most.max(arrived.len() + kept);
            if let Some(answer) = answer {
                let passed = [&answer[..], &arrived, &left.collect::<Vec<_>>().concat()].concat();
                let answer = passed.strip_suffix(BEHIND).expect("what is behind stays");
                let answer = Bytes::copy_from_slice(answer);
                return Ok((request.end().unwrap_or_default(), answer, most));
            }
        }
        Err(Unexpected::Shape)
    }

    fn plain(entries: &Entries) -> Plain {
        let fields = |fields: Vec<(Bytes, Bytes)>| {
            let fields = fields.into_iter().map(|(n, v)| (n.to_vec(), v.to_vec()));
            fields.collect()
        };
        let entries = entries.clone().read(|memory| memory);
        entries.map(|(id, f)| (id.to_vec(), fields(f))).collect()
    }

    fn some_entries() -> impl Strategy<Value = Plain> {
        let part = || vec(any::<u8>(), 0..200);
        vec(
            (vec(any::<u8>(), 1..44), vec((part(), part()), 0..6)),
            0..20,
        )
    }

    proptest! {
        #[test]
        fn entries_arrive_whole_in_any_pieces(
            entries in some_entries(), resp3: bool, piece in 1usize..400
        ) {
            let (got, answer, _) = arrives(&reply(&entries, resp3), usize::MAX, piece).unwrap();
            prop_assert_eq!(plain(&got), entries);
            prop_assert_eq!(got.skipped.len(), 0);
            prop_assert_eq!(&answer[..], TAKEN);
        }

        #[test]
        fn a_large_entry_leaves_its_id_and_takes_no_memory(
            entries in some_entries(), limit in 0usize..500, piece in 1usize..400
        ) {
            let (got, answer, most) = arrives(&reply(&entries, false), limit, piece).unwrap();
            prop_assert_eq!(&answer[..], TAKEN);
            let first = entries.first().map_or(0, |first| reply(&vec![first.clone()], false).len());
            // Bytes that arrive in one piece, and lines, come on top.
            prop_assert!(most <= first.max(2 * limit) + piece + 300, "{most}");
            let mut skipped = got.skipped.iter().map(|id| id.to_vec()).peekable();
            let mut read = plain(&got).into_iter().peekable();
            for entry in entries {
                if read.next_if_eq(&entry).is_none() {
                    prop_assert_eq!(skipped.next(), Some(entry.0));
                }
            }
            prop_assert_eq!((skipped.next(), read.next()), (None, None));
        }

        #[test]
        fn any_bytes_are_entries_or_refused(bytes in vec(any::<u8>(), 0..200), piece in 1usize..200) {
            drop(arrives(&[b"*1\r\n*2\r\n", &bytes[..]].concat(), 1000, piece));
        }
    }

    #[test]
    fn no_entries_are_nil() {
        for nil in ["*-1\r\n", "_\r\n", "$-1\r\n"] {
            let (got, answer, _) = arrives(nil.as_bytes(), 100, 1).unwrap();
            assert_eq!((got, &answer[..]), (Entries::default(), TAKEN));
        }
    }

    #[test]
    fn a_refusal_goes_to_the_client_library() {
        let intake = Intake::default();
        let request = intake.begin(100);
        let mut arrived = BytesMut::from("-NOGROUP no such group\r\n");
        let answer = intake.take(&mut arrived).unwrap().unwrap();
        assert_eq!(&answer[..], b"-NOGROUP no such group\r\n");
        assert_eq!(request.end(), None);
        assert!(!intake.is_wanted() && !intake.is_lost());
    }

    #[test]
    fn bytes_behind_a_reply_are_not_lost() {
        let intake = Intake::default();
        let _request = intake.begin(100);
        let mut arrived = BytesMut::from("*-1\r\n:7\r\n");
        let answer = intake.take(&mut arrived).unwrap().unwrap();
        assert_eq!(&answer[..], b"+OK\r\n:7\r\n");
    }

    #[test]
    fn a_connection_is_lost_when_nobody_waits_for_its_entries() {
        let intake = Intake::default();
        drop(intake.begin(100));
        assert!(intake.is_lost());
        let intake = Intake::default();
        assert_eq!(intake.begin(100).end(), None);
        assert!(!intake.is_lost());
        // It stays lost: the next reply is for the request that did not wait.
        drop(intake.begin(100));
        let _request = intake.begin(100);
        assert!(intake.is_lost() && !intake.is_wanted());
    }

    #[test]
    fn a_large_last_entry_ends_with_its_reply() {
        let field = |size| vec![(b"f".to_vec(), vec![b':'; size])];
        let entries = vec![(b"1-0".to_vec(), field(9)), (b"2-0".to_vec(), field(3000))];
        let (got, answer, _) = arrives(&reply(&entries, false), 100, 64).unwrap();
        assert_eq!(plain(&got), entries[..1]);
        assert_eq!(got.skipped, [&b"2-0"[..]]);
        assert_eq!(&answer[..], TAKEN);
    }

    #[test]
    fn fields_without_bytes_count_as_what_the_host_keeps_of_them() {
        let fields = vec![(b"f".to_vec(), Vec::new()); 1000];
        let entries = vec![
            (b"1-0".to_vec(), fields.clone()),
            (b"2-0".to_vec(), fields),
            (b"3-0".to_vec(), vec![(b"f".to_vec(), b"v".to_vec())]),
        ];
        // The bytes of two would fit, and not what the host keeps of them.
        let (got, _, _) = arrives(&reply(&entries, false), 100 << 10, 64).unwrap();
        assert_eq!(got.skipped, [&b"2-0"[..], b"3-0"]);
        assert!(got.held() > 2000 * PART_HELD, "{}", got.held());
    }

    #[test]
    fn entries_without_fields_count_against_the_limit() {
        let entries = vec![(b"1-0".to_vec(), Vec::new()); 100];
        let (got, _, most) = arrives(&reply(&entries, false), 100, 10).unwrap();
        assert_eq!(plain(&got).len() + got.skipped.len(), 100);
        assert!(most <= 2 * 100 + 10 + 50, "{most}");
    }

    #[test]
    fn a_reply_of_very_many_large_bytes_is_given_up() {
        let intake = Intake::default();
        let _request = intake.begin(100);
        let field = |size| vec![(b"f".to_vec(), vec![b'x'; size])];
        let large = (b"2-0".to_vec(), field(SKIPPED_MAX / 2 + 1));
        let entries = vec![(b"1-0".to_vec(), field(9)), large.clone(), large];
        let mut arrived = BytesMut::from(&reply(&entries, false)[..]);
        assert_eq!(intake.take(&mut arrived), Err(Unexpected::TooLarge));
    }
}
