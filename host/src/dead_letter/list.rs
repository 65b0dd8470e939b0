//! Dead-letter queues that are lists: entries have no ids, and places that move.
//!
//! An entry is named by a digest of its value, and removed by its value. A walk goes from the right
//! (the oldest) to the left, and remembers how many entries it has passed and left. If others remove some
//! of those, it looks for an entry that it knows. If it finds none, it begins again from the right: then
//! it may meet an entry twice, but it skips none.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{DeadLetters, Entry, Error};
use crate::delivery::message::Headers;
use crate::delivery::text::hex;
use crate::redis::walk::{PAGE, Places, stretch};
use crate::wire::dead_letter::replay::{self, Replaying};
use crate::wire::dead_letter::{FRAMING, REASON, RECORDS, SOURCE};
use crate::wire::list::{self, Codec};
use crate::wire::{envelope, frame, keys};

/// Most values that mark the end of a walk: each of them is enough.
const MARKS_MAX: u64 = 4;
/// How often a walk looks for its place before it begins again.
const LOOKS_MAX: usize = 3;
/// How many bytes of a digest name an entry.
const ID_BYTES: usize = 16;

/// The id of an entry: equal values share it.
pub(super) fn id_of(value: &[u8]) -> String {
    hex(&Sha256::digest(value)[..ID_BYTES])
}

/// Headers, payload, and the codec for a copy of this value. A value that is neither a frame nor the
/// envelope of a dead letter is a payload without headers.
pub(super) fn read(value: &Bytes) -> (Headers, Bytes, Codec) {
    if let Some((headers, payload)) = frame::decode(value) {
        return (headers, payload, Codec::Frame);
    }
    match envelope::decode(value) {
        Some((headers, payload)) if headers.find(REASON).is_some() => {
            (headers, payload, Codec::Json)
        }
        _ => (Headers::default(), value.clone(), Codec::Frame),
    }
}

/// The value of a replayed copy in `target`. `records` says which of its records it keeps. A raw value has headers beside its own list only: in any
/// other list the copy is the payload, as it was published.
pub(super) fn copy_of(
    value: &Bytes,
    target: &str,
    replaying: Replaying<'_>,
    records: impl Fn(&Bytes) -> Option<Bytes>,
) -> Result<Bytes, list::Error> {
    let (headers, payload, codec) = read(value);
    if is_bare(&headers, target) {
        return Ok(payload);
    }
    let mut copied = replay::headers(&headers, replaying);
    if let Some(text) = headers.find(RECORDS) {
        copied.remove(RECORDS);
        if let Some(left) = records(text) {
            copied.push(RECORDS, left);
        }
    }
    list::encode(&copied, &payload, codec)
}

/// Whether its copy in this list has no headers.
pub(super) fn is_bare(headers: &Headers, target: &str) -> bool {
    is_raw(headers) && home(headers).as_deref() != Some(target)
}

/// The list for a dead letter: `to`, or else its home, the list that it died in. The home of a raw value
/// is the retry list, where values have headers.
pub(super) fn target(headers: &Headers, to: Option<&str>) -> Option<String> {
    match to {
        Some(to) if headers.find_str(SOURCE) != Some(to) => Some(to.to_owned()),
        _ => home(headers),
    }
}

fn home(headers: &Headers) -> Option<String> {
    let source = headers.find_str(SOURCE).filter(|key| !key.is_empty())?;
    Some(match is_raw(headers) {
        true => keys::retry(source),
        false => source.to_owned(),
    })
}

fn is_raw(headers: &Headers) -> bool {
    headers.find_str(FRAMING) == Some("raw")
}

/// A walk through a list.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// How many entries were passed, if none of the last page was removed since.
    place: u64,
    /// Candidates for the last of those: the last page, and the last entry before it.
    known: Vec<Bytes>,
    /// The handle's count of removed entries when the place was right.
    removed: u64,
    /// The newest entries at the start, newest first.
    marks: Vec<Bytes>,
    /// How many were there at the start, and are not seen yet.
    unseen: u64,
    is_over: bool,
}

impl Walk {
    /// Over the entries that are there now.
    pub(super) async fn begin(letters: &DeadLetters) -> Result<Self, Error> {
        let unseen = letters.length().await?;
        let read = stretch(
            &letters.link,
            &letters.key,
            Places::Newest,
            (0, MARKS_MAX),
            &[],
        );
        let marks = letters.checked(read.await)?.0.into_iter();
        let marks: Vec<Bytes> = marks.map(|(value, _)| value).collect();
        Ok(Self {
            place: 0,
            known: Vec::new(),
            removed: letters.removed(),
            is_over: marks.is_empty(),
            marks,
            unseen,
        })
    }

    /// The next entries, oldest first; `None` at the end.
    pub(super) async fn next(
        &mut self,
        letters: &DeadLetters,
    ) -> Result<Option<Vec<Entry>>, Error> {
        let mut looks = 0;
        loop {
            if self.is_over {
                return Ok(None);
            }
            let removed = letters.removed();
            let taken = removed.saturating_sub(self.removed);
            self.place = self.place.saturating_sub(taken);
            self.removed = removed;
            // The last passed entry is read again, to see whether it is where it was.
            let back = self.place.min(1);
            let places = (self.place - back, PAGE as u64 + back);
            let (mut values, left) = letters.oldest_values(places, &self.marks).await?;
            let mut known = Vec::new();
            if back == 1 {
                if !values.first().is_some_and(|last| self.known.contains(last)) {
                    looks += 1;
                    self.place = match looks {
                        0..=LOOKS_MAX => self.find(letters).await?,
                        _ => 0,
                    };
                    continue;
                }
                known.push(values.remove(0));
            }
            match left {
                Some(left) => self.is_over = left == 0,
                // Others have removed every mark: read at most as many entries as there were.
                None => values.truncate(usize::try_from(self.unseen).unwrap_or(usize::MAX)),
            }
            self.is_over |= values.is_empty();
            self.unseen = self.unseen.saturating_sub(values.len() as u64);
            self.place += values.len() as u64;
            known.extend(values.iter().cloned());
            self.known = known;
            return Ok(Some(values.into_iter().map(Entry::of_value).collect()));
        }
    }

    /// Others removed some of the passed entries: how many of the known ones are left.
    async fn find(&self, letters: &DeadLetters) -> Result<u64, Error> {
        let from = self.place.saturating_sub(PAGE as u64);
        let (values, _) = letters.oldest_values((from, PAGE as u64), &[]).await?;
        let is_known = |value| self.known.contains(value);
        let last = values.iter().rposition(is_known);
        Ok(last.map_or(0, |last| from + last as u64 + 1))
    }
}
