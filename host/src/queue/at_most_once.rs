//! The common part of the kinds that forget a message when they hand it out (at most once). A kind plugs
//! in its source.
//!
//! This host asks the server nothing about a message that it took: a record, a renewal and a settlement
//! are done at once.
//!
//! Messages expire by the server's clock, as in every queue: housekeeping reads it.
//!
//! Dies here: the messages that the host took and has not finished are lost, without a trace. A host that stops, or
//! becomes slow, gives back what has not started, if its source takes it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Cmd;
use tracing::{debug, warn};

use super::{
    Backlog, Claim, Contact, Guarantee, Maintenance, Observation, Origin, Queue, Record, Repair,
    Repaired, Reply, SettleAction, Settlement, Taken, unique_name,
};
use crate::calls::words::reply_of;
use crate::calls::{Replies, complete};
use crate::delivery::hold::Held;
use crate::delivery::message::DeliveryId;
use crate::outgoing::Outlets;
use crate::outgoing::effects::{self, Source as Effects};
use crate::outgoing::scripts;
use crate::redis::ServerTime;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::script::Script;
use crate::wire::Raw;
use crate::wire::list::{self, Framing};

/// After how many bytes a command that puts values back has enough.
const BACK_MAX: usize = 1 << 20;

/// A source of messages that are forgotten.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Wait up to `wait` for values, and take at most `want` of them.
    ///
    /// # Errors
    /// The source cannot be reached; values taken before are lost, or come next time.
    async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error>;

    /// Make a waiting [`Source::take`] return early (with what it has).
    ///
    /// # Errors
    /// The wait ends by itself, later.
    async fn interrupt(&self) -> Result<(), Error>;

    /// Take nothing more from the server.
    fn stop(&self);

    /// Whether values that no handler has started can go back.
    fn takes_back(&self) -> bool {
        false
    }

    /// Put values back where they were, the first one first. After an error nothing went back. If that is not known, they
    /// count as gone: they must not be there twice.
    ///
    /// # Errors
    /// The source refuses them, or cannot be reached.
    async fn give_back(&self, _values: &[Bytes]) -> Result<(), Error> {
        Ok(())
    }

    /// How many values wait.
    ///
    /// # Errors
    /// The source cannot be reached.
    async fn waiting(&self) -> Result<u64, Error>;

    /// Whether values can be taken.
    ///
    /// # Errors
    /// Why not.
    async fn probe(&self) -> Result<(), Error>;

    /// Counters about the server and the connections to it.
    fn contact(&self) -> Contact;
}

/// A value, and the queue that it came from: a key, or a channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Value {
    /// The key or the channel.
    pub queue: Arc<str>,
    /// Its bytes.
    pub bytes: Bytes,
    /// When it was published, in epoch milliseconds; 0 = unknown.
    pub enqueued_ms: u64,
}

/// A queue that forgets a message when it hands it out.
#[derive(Debug)]
pub struct AtMostOnce<S> {
    source: S,
    framing: Framing,
    consumer: String,
    /// Where its handler publishes, and the connection for it.
    outlets: Outlets,
    link: Link,
    /// The name of the queue, for the ids of follow-ups.
    name: String,
    /// The first half of the ids of deliveries, unique to this start.
    first: u64,
    next: AtomicU64,
    time: Arc<ServerTime>,
    /// Where the server's clock is read; `None` = this host may not read it.
    clock: Option<Arc<Link>>,
}

impl<S: Source> AtMostOnce<S> {
    /// A queue of the values of this source, for a host whose name begins with `consumer`. Messages
    /// expire by `time`, which is read at `clock` from now on.
    pub(super) async fn open(
        source: S,
        framing: Framing,
        consumer: &str,
        time: Arc<ServerTime>,
        clock: Arc<Link>,
        (connector, name, outlets): (&Connector, &str, Outlets),
    ) -> Result<Self, Error> {
        let clock = match time.read(&clock).await {
            Ok(()) => Some(clock),
            Err(error) if error.is_missing_right() => {
                let hint = "grant the user `+time`";
                warn!(hint, "messages expire by the clock of this machine");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            outlets,
            link: connector.link("publish"),
            name: name.to_owned(),
            source,
            framing,
            consumer: unique_name(consumer),
            first: fastrand::u64(..),
            next: AtomicU64::new(1),
            time,
            clock,
        })
    }

    /// Put back what no handler has started. The value that was taken first is the next one to be taken.
    async fn give_back(&self, settlements: &[Settlement], replies: &mut Replies) {
        let goes_back = |place: &usize| {
            let action = &settlements[*place].action;
            replies[*place].is_none() && matches!(action, SettleAction::HandBack { .. })
        };
        let mut places: Vec<usize> = (0..settlements.len()).filter(goes_back).collect();
        // Their ids count up.
        places.sort_unstable_by_key(|place| Reverse(settlements[*place].claim.id));
        let value_of = |place: &usize| match &settlements[*place].claim.raw {
            Raw::Value(value) => value.clone(),
            Raw::Fields(_) => Bytes::new(),
        };
        let mut rest = &places[..];
        let mut refusal: Option<String> = None;
        while !rest.is_empty() {
            let (mut values, mut size) = (Vec::new(), 0);
            for place in rest {
                let value = value_of(place);
                if !values.is_empty() && size + value.len() > BACK_MAX {
                    break;
                }
                size += value.len();
                values.push(value);
            }
            let (some, others) = rest.split_at(values.len());
            if refusal.is_none() {
                let gave = self.source.give_back(&values).await;
                refusal = gave.err().map(|error| error.to_string());
            }
            for place in some {
                replies[*place] = Some(match &refusal {
                    Some(cause) => Reply::Refused(cause.clone()),
                    None => Reply::Done,
                });
            }
            rest = others;
        }
    }

    /// A delivery with one start. The starts in its headers were in other queues.
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
            is_duplicate: false,
            reserved_ms: None,
            held: Held::default(),
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

    fn takes_back(&self) -> bool {
        self.source.takes_back()
    }

    fn time(&self) -> Arc<ServerTime> {
        Arc::clone(&self.time)
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

    /// A discarded message is gone already; one that has not started may go back. The effects of a handled one
    /// happen now. If their answer is lost, they may happen again.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Reply>, Error> {
        let acts = |settlement: &Settlement| {
            let effects = settlement.effects.as_ref();
            settlement.action == SettleAction::Acknowledge
                && effects.is_some_and(|effects| !effects.is_empty())
        };
        let one = |settlement: &Settlement| match settlement.action {
            _ if acts(settlement) => None,
            SettleAction::Acknowledge | SettleAction::Discard(_) => Some(Reply::Done),
            SettleAction::HandBack { .. } if self.source.takes_back() => None,
            _ => Some(Reply::Gone),
        };
        let mut replies: Replies = settlements.iter().map(one).collect();
        self.give_back(settlements, &mut replies).await;
        let acting: Vec<usize> = (0..settlements.len())
            .filter(|place| acts(&settlements[*place]))
            .collect();
        let source = Effects {
            outlets: &self.outlets,
            outboxes: None,
            key: &self.name,
            group: None,
            inboxes: None,
        };
        let script = &scripts::PUBLISH;
        let calls = effects::Calls {
            link: &self.link,
            script,
            script_without: script,
            between: &[],
            begin: |script: &'static Script, keys: &[&str]| (script.on(keys), 0),
            one: |settlement: &Settlement, call: &mut Cmd| {
                let effects = settlement.effects.as_ref();
                call.arg(effects.map_or(0, |effects| effects.progress()));
            },
            meaning: |settlement: &Settlement, word: &str| {
                let (count, why) = word.split_at(word.find('-')?);
                if let (Some(effects), Ok(count)) = (&settlement.effects, count.parse()) {
                    effects.are_written(count);
                }
                reply_of(script.name(), why).ok()
            },
            about: |error| error,
        };
        let settled = source.settle(calls, (settlements, &acting), &mut replies);
        if let Err(error) = settled.await {
            // Only what had no answer is tried again: the rest has happened.
            for reply in &mut replies {
                reply.get_or_insert_with(|| Reply::Refused(error.with_hint()));
            }
        }
        complete(script, replies)
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Reply>, Error> {
        Ok(vec![Reply::Done; claims.len()])
    }

    async fn maintain(&self) -> Result<Maintenance, Error> {
        if let Some(clock) = &self.clock
            && let Err(error) = self.time.read(clock).await
        {
            // It goes on from the last reading. Taking messages does not depend on it.
            debug!(%error, "could not read the clock of the server");
        }
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
            outbox: 0,
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
