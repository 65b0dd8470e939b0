//! Bounds in bytes: of one request for messages, and of all messages that a host holds.
//!
//! The size of a message is not known before it is read. So a script stops reading after a number of bytes,
//! and a host that holds many bytes reads nothing until some of them are settled. A message that is larger
//! than the bounds is read alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::calls::copy;
use crate::queue::Claim;
use crate::queue::interruption::Interruption;
use crate::redis::connection::ENTRY_HELD;
use crate::wire::Raw;

/// After how many bytes a request stops at most: copying them blocks Redis.
const REQUEST_MAX: usize = 4 << 20;
/// The same of the first request, when the speed of the link is unknown.
const REQUEST_FIRST: usize = 128 << 10;
/// The same on the slowest link.
const REQUEST_MIN: usize = 32 << 10;
/// How long the answer to a request should take: messages must not age on their way.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// For how long a scan for orphans goes on where it finds some: one request brings few large ones.
pub(super) const SCAN_TIME: Duration = Duration::from_millis(500);
/// The bytes that a host may hold beyond those that its handlers may have at once.
const HELD_BEYOND: usize = 32 << 20;
/// The part of these that only orphans and due messages may take: new ones would take all of it.
const RESERVED: usize = 4 << 20;
/// A smaller message is not counted: the bounds of the number of messages are enough.
const COUNTED_MIN: usize = 4 << 10;
/// The most entries of a stream that one plain command reads. Redis writes all of them, however large they turn out
/// to be.
const PLAIN_MAX: usize = 512;
/// The fewest: where fewer fit, they are large, and a script reads them.
const PLAIN_MIN: usize = 16;
/// The bytes that one plain command should bring.
const PLAIN_BYTES: usize = 256 << 10;
/// How often a fetch that waits for room looks whether it is to return.
const LOOK: Duration = Duration::from_millis(20);

/// The bytes that handlers may have at once, by default: 16 handlers, 1 MiB each.
pub const HANDLED: usize = 16 << 20;

/// The most bytes of messages that a host holds, if its handlers may have `handled` bytes at once. The last
/// message may be larger than the rest of the room.
pub fn held_max(handled: usize) -> usize {
    handled.saturating_add(HELD_BEYOND)
}

/// The bounds of one host, and where it stands.
#[derive(Debug)]
pub(super) struct ByteBounds {
    request: AtomicUsize,
    /// The size of the largest new message lately; 0 = no message has come yet.
    largest: AtomicUsize,
    held_max: usize,
    held: Arc<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    freed: Notify,
}

/// Bytes that count as held until their last use ends.
struct Counted {
    bytes: Bytes,
    /// As much as they count.
    size: usize,
    held: Arc<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.size, Ordering::SeqCst);
        self.held.freed.notify_one();
    }
}

/// What a message takes in the host.
fn held(claim: &Claim) -> usize {
    match &claim.raw {
        Raw::Fields(fields) => copy::held(fields),
        Raw::Value(value) => value.len(),
    }
}

impl ByteBounds {
    pub(super) fn new(held_max: usize) -> Self {
        Self {
            request: AtomicUsize::new(REQUEST_FIRST),
            largest: AtomicUsize::new(0),
            held_max,
            held: Arc::default(),
        }
    }

    /// After how many bytes the next request stops.
    pub(super) fn request(&self) -> usize {
        self.request.load(Ordering::Relaxed)
    }

    /// The same for new messages; waits until there is room for some. `None`: there was no room in time, or the
    /// fetch is to return.
    pub(super) async fn for_new(
        &self,
        wait: Duration,
        interruption: &Interruption,
    ) -> Option<usize> {
        let until = Instant::now() + wait;
        loop {
            if let Some(room) = self.room(self.held_max) {
                return Some(room);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || interruption.is_wanted() {
                return None;
            }
            // After either, the room decides.
            drop(timeout(left.min(LOOK), self.held.freed.notified()).await);
        }
    }

    /// The same for messages that hosts have held before; `None` if there is no room for any.
    pub(super) fn for_old(&self) -> Option<usize> {
        self.room(self.held_max.saturating_add(RESERVED))
    }

    fn room(&self, most: usize) -> Option<usize> {
        let room = most.saturating_sub(self.held.bytes.load(Ordering::SeqCst));
        (room > 0).then(|| room.min(self.request()))
    }

    /// How many entries of a stream a plain command may read: as many as fit into the bytes of a request, if none is
    /// larger than those before them. `None`: too few, a script must read them.
    pub(super) fn plain(&self, want: usize, request: usize) -> Option<usize> {
        if request < REQUEST_FIRST {
            // A slow link must not carry entries that go back, and a host with little room must not take many.
            return None;
        }
        let largest = self.largest.load(Ordering::Relaxed);
        let fitting = request.min(PLAIN_BYTES) / largest.max(ENTRY_HELD);
        (largest > 0 && fitting >= PLAIN_MIN).then(|| fitting.min(PLAIN_MAX).min(want))
    }

    /// An entry was too large for a plain command, or such a command failed: the script reads the next ones.
    pub(super) fn read_by_script(&self) {
        self.largest.store(PLAIN_BYTES, Ordering::Relaxed);
    }

    /// These new messages came.
    pub(super) fn saw(&self, claims: &[Claim]) {
        if let Some(largest) = claims.iter().map(held).max() {
            // The size sinks slowly: large messages may come again.
            let before = self.largest.load(Ordering::Relaxed);
            let largest = largest.max(before - before / 8).max(1);
            self.largest.store(largest, Ordering::Relaxed);
        }
    }

    /// These messages came in answer to a request.
    pub(super) fn answered(&self, claims: &[Claim], took: Duration) {
        self.took(claims.iter().map(held).sum(), took);
    }

    /// `bytes` bytes came in answer to a request: the next one is as large as the link allows.
    pub(super) fn took(&self, bytes: usize, took: Duration) {
        let request = self.request();
        if bytes < request / 2 && took < 2 * ANSWER_TIME {
            return;
        }
        let share = ANSWER_TIME.as_secs_f64() / took.as_secs_f64().max(0.001);
        let fitting = (bytes as f64 * share).min(2.0 * request as f64);
        let fitting = (fitting as usize).clamp(REQUEST_MIN, REQUEST_MAX);
        self.request.store(fitting, Ordering::Relaxed);
    }

    /// A request failed: the next one is smaller.
    pub(super) fn failed(&self) {
        let smaller = (self.request() / 4).max(REQUEST_MIN);
        self.request.store(smaller, Ordering::Relaxed);
    }

    /// The fields of an entry, of which each has bytes of its own; they count as held until their last use ends.
    pub(super) fn hold_fields(&self, fields: &mut [(Bytes, Bytes)]) {
        let is_small = |value: &Bytes| value.len() < COUNTED_MIN;
        let values = fields.iter().map(|(_, value)| value);
        let apart: usize = values
            .filter(|value| !is_small(value))
            .map(Bytes::len)
            .sum();
        // The rest counts with the first value.
        let mut rest = copy::held(fields) - apart;
        for (_, value) in fields {
            let own = if is_small(value) { 0 } else { value.len() };
            *value = self.hold_as(std::mem::take(value), own + std::mem::take(&mut rest));
        }
    }

    /// The same bytes; they count as held until their last use ends.
    pub(super) fn hold(&self, bytes: Bytes) -> Bytes {
        let size = bytes.len();
        self.hold_as(bytes, size)
    }

    /// The same bytes; they count as `size`, because the host keeps more than them.
    pub(super) fn hold_as(&self, bytes: Bytes, size: usize) -> Bytes {
        if size < COUNTED_MIN {
            return bytes;
        }
        self.held.bytes.fetch_add(size, Ordering::SeqCst);
        Bytes::from_owner(Counted {
            bytes,
            size,
            held: Arc::clone(&self.held),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(bounds: &ByteBounds) {
        bounds.took(bounds.request(), Duration::from_millis(1));
    }

    #[test]
    fn a_request_grows_on_a_fast_link_and_shrinks_on_a_slow_one() {
        let bounds = ByteBounds::new(usize::MAX);
        quick(&bounds);
        assert_eq!(bounds.request(), 2 * REQUEST_FIRST);
        for _ in 0..9 {
            quick(&bounds);
        }
        assert_eq!(bounds.request(), REQUEST_MAX);
        // A small answer says nothing, unless it takes long.
        bounds.took(10, Duration::from_millis(400));
        assert_eq!(bounds.request(), REQUEST_MAX);
        // 64 KiB per second.
        bounds.took(256 << 10, Duration::from_secs(4));
        assert_eq!(bounds.request(), REQUEST_MIN);
        for _ in 0..9 {
            quick(&bounds);
        }
        bounds.failed();
        assert_eq!(bounds.request(), REQUEST_MAX / 4);
        for _ in 0..9 {
            bounds.failed();
        }
        assert_eq!(bounds.request(), REQUEST_MIN);
    }

    #[tokio::test]
    async fn many_small_fields_count_as_what_the_host_keeps_of_them() {
        let bounds = ByteBounds::new(1 << 20);
        let idle = Interruption::default();
        let field = (Bytes::from_static(b"f"), Bytes::from_static(b"v"));
        let mut few = vec![field.clone(); 2];
        bounds.hold_fields(&mut few);
        assert_eq!(bounds.held.bytes.load(Ordering::SeqCst), 0);
        // Of 20,000 bytes.
        let mut many = vec![field; 10_000];
        bounds.hold_fields(&mut many);
        assert_eq!(bounds.for_new(Duration::ZERO, &idle).await, None);
        drop(many);
        assert_eq!(bounds.held.bytes.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn there_is_no_room_until_the_last_use_of_a_large_message_ends() {
        let bounds = ByteBounds::new(1 << 20);
        let idle = Interruption::default();
        let small = bounds.hold(Bytes::from(vec![0; COUNTED_MIN - 1]));
        let large = bounds.hold(Bytes::from(vec![7; 2 << 20]));
        assert_eq!(large, vec![7; 2 << 20]);
        assert_eq!(bounds.for_new(Duration::ZERO, &idle).await, None);
        assert_eq!(bounds.for_old(), Some(REQUEST_FIRST));
        let larger = bounds.hold(Bytes::from(vec![0; 8 << 20]));
        assert_eq!(bounds.for_old(), None);
        let part = large.slice(9..10);
        drop((larger, large));
        assert_eq!(bounds.for_new(Duration::ZERO, &idle).await, None);
        let long = Duration::from_secs(60);
        let (room, ()) = tokio::join!(bounds.for_new(long, &idle), async {
            tokio::task::yield_now().await;
            drop(part);
        });
        assert_eq!(room, Some(REQUEST_FIRST));
        assert_eq!(bounds.held.bytes.load(Ordering::SeqCst), 0);
        drop(small);
    }
}
