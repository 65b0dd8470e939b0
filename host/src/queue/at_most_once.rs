//! What the kinds have in common that forget what they hand out (at most once): everything but
//! where messages come from.
//!
//! Nothing is asked of the server about a message once it is here, so nothing about it can fail
//! there: a record, a renewal and a settlement are done as soon as they are asked.
//!
//! Dies here: everything that the host took and has not finished is lost, without a trace.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Backlog, Claim, Contact, Guarantee, Maintenance, Observation, Origin, Queue, Record, Repair,
    Repaired, Reply, SettleAction, Settlement, Taken,
};
use crate::delivery::message::DeliveryId;
use crate::redis::error::Error;
use crate::wire::Raw;
use crate::wire::list::{self, Framing};

/// Where messages come from that nobody keeps.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Wait up to `wait` for values, and take at most `want` of them.
    ///
    /// # Errors
    /// The source cannot be reached; what was taken before is lost with it, or comes next time.
    async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error>;

    /// Make a waiting [`Source::take`] return early (with what it has).
    ///
    /// # Errors
    /// It returns by itself, later.
    async fn interrupt(&self) -> Result<(), Error>;

    /// Take nothing more from the server.
    fn stop(&self);

    /// How many values wait that no host has taken.
    ///
    /// # Errors
    /// The source cannot be reached.
    async fn waiting(&self) -> Result<u64, Error>;

    /// Whether values can be taken.
    ///
    /// # Errors
    /// Why not.
    async fn probe(&self) -> Result<(), Error>;

    /// What it has needed of its server so far.
    fn contact(&self) -> Contact;
}

/// A value, and the queue that it came from: a key, or a channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Value {
    /// The key or the channel.
    pub queue: Arc<str>,
    /// The value as it was published.
    pub bytes: Bytes,
    /// When it was, in epoch milliseconds; 0 = unknown.
    pub enqueued_ms: u64,
}

/// A queue of values that nobody keeps.
#[derive(Debug)]
pub struct AtMostOnce<S> {
    source: S,
    framing: Framing,
    consumer: String,
    /// The first half of the numbers of deliveries: of this start.
    first: u64,
    next: AtomicU64,
}

impl<S: Source> AtMostOnce<S> {
    /// A queue of what this source brings, read by this framing, for a host whose name begins so.
    pub(super) fn new(source: S, framing: Framing, consumer: &str) -> Self {
        let base = match consumer {
            "" => "hostler",
            base => base,
        };
        Self {
            source,
            framing,
            consumer: format!("{base}-{:08x}", fastrand::u32(..)),
            first: fastrand::u64(..),
            next: AtomicU64::new(1),
        }
    }

    /// A delivery. The starts that its headers tell of were elsewhere: here it has one.
    fn claim(&self, value: Value) -> Claim {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = DeliveryId(u128::from(self.first) << 64 | u128::from(number));
        let name = format!("{:032x}", id.0);
        let decoded = list::decode(
            &value.queue,
            &name,
            value.enqueued_ms,
            &value.bytes,
            self.framing,
        );
        Claim {
            id,
            origin: Origin::Fresh,
            native: 1,
            header: 0,
            expires_at_ms: None,
            message: decoded.message,
            raw: Raw::Value(value.bytes),
            defect: decoded.defect,
        }
    }
}

#[async_trait]
impl<S: Source> Queue for AtMostOnce<S> {
    fn consumer(&self) -> &str {
        &self.consumer
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::AtMostOnce
    }

    fn stop_taking(&self) {
        self.source.stop();
    }

    async fn fetch(&self, want: usize, wait: Duration) -> Result<Vec<Claim>, Error> {
        if want == 0 {
            return Ok(Vec::new());
        }
        let values = self.source.take(want, wait).await?;
        Ok(values.into_iter().map(|value| self.claim(value)).collect())
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.source.interrupt().await
    }

    async fn take_due(&self, _max: usize) -> Result<Taken, Error> {
        Ok(Taken::default())
    }

    async fn take_orphans(
        &self,
        _max: usize,
        _holds: &(dyn for<'a> Fn(&'a DeliveryId) -> bool + Sync),
    ) -> Result<Taken, Error> {
        Ok(Taken::default())
    }

    async fn record(&self, records: &[Record]) -> Result<Vec<Reply>, Error> {
        Ok(vec![Reply::Done; records.len()])
    }

    async fn acknowledge(&self, _claims: &[Arc<Claim>]) -> Result<(), Error> {
        Ok(())
    }

    /// What takes a delivery off is done already; nothing can go anywhere.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        let one = |settlement: &Settlement| match settlement.action {
            SettleAction::Discard(_) => Reply::Done,
            _ => Reply::Gone,
        };
        Ok(settlements.iter().map(one).collect())
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        Ok(vec![Reply::Done; claims.len()])
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        Ok(Maintenance::default())
    }

    /// Nothing has to be made before it can be read: nothing is ever missing.
    async fn repair(&self, held: &[(Arc<Claim>, u32)]) -> Result<Repair, Error> {
        Ok(Repair {
            repaired: Repaired::Intact,
            held: vec![Reply::Done; held.len()],
        })
    }

    async fn backlog(&self) -> Result<Backlog, Error> {
        Ok(Backlog {
            unread: self.source.waiting().await? > 0,
            pending: 0,
        })
    }

    async fn observe(&self) -> Result<Option<Observation>, Error> {
        Ok(Some(Observation {
            unread: self.source.waiting().await?,
            ..Observation::default()
        }))
    }

    async fn probe(&self) -> Result<(), Error> {
        self.source.probe().await
    }

    fn contact(&self) -> Contact {
        self.source.contact()
    }

    async fn leave(&self) -> Result<(), Error> {
        Ok(())
    }
}
