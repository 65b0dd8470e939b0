//! Gathering messages for one call of a handler that takes several.
//!
//! One slot gathers at a time, so that messages which come together go together: with all slots at
//! the counter, each would get one. A message waits for others from the moment it is taken, for
//! [`Batching::wait`] at most; what has come before is taken without waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::delivery::ledger::Key;
use crate::runtime::executor::{Report, Word};
use crate::runtime::fault_point::{self, Point};
use crate::runtime::job::Ticket;

/// How messages are gathered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Batching {
    /// The most messages of a call.
    pub size: usize,
    /// How long the first one waits for others.
    pub wait: Duration,
    /// Bytes of bodies: with so many, no further message is waited for.
    pub bytes: usize,
}

/// Where slots take tickets. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    tickets: async_channel::Receiver<Arc<Ticket>>,
    gathering: Arc<Mutex<()>>,
}

impl Counter {
    pub(super) fn new(tickets: async_channel::Receiver<Arc<Ticket>>) -> Self {
        Self {
            tickets,
            gathering: Arc::default(),
        }
    }

    /// The next ticket, if there is one now.
    pub(super) fn try_one(&self) -> Option<Arc<Ticket>> {
        self.tickets.try_recv().ok()
    }

    /// The next ticket; `None` = there are no more. Nothing is lost if this is not waited for.
    pub(super) async fn one(&self) -> Option<Arc<Ticket>> {
        self.tickets.recv().await.ok()
    }

    /// Wait until it is this slot's turn to gather, and a ticket is there.
    pub(super) async fn first(&self) -> Option<First<'_>> {
        let turn = self.gathering.lock().await;
        let ticket = self.one().await?;
        Some(First {
            counter: self,
            ticket,
            turn,
        })
    }
}

/// The first ticket of a batch, and the turn to gather the others.
#[derive(Debug)]
pub(super) struct First<'a> {
    counter: &'a Counter,
    ticket: Arc<Ticket>,
    #[expect(dead_code, reason = "held until all are gathered")]
    turn: tokio::sync::MutexGuard<'a, ()>,
}

impl First<'_> {
    /// The tickets of a batch, all taken. None, if the driver took them all back.
    pub(super) async fn gather(self, batching: &Batching) -> Vec<Arc<Ticket>> {
        let deadline = Instant::now() + batching.wait;
        let mut gathered = Vec::new();
        let mut bytes = 0_usize;
        let mut next = Some(self.ticket);
        while let Some(ticket) = next {
            if ticket.take() {
                let body = ticket.job.claim.message.body.len();
                bytes = bytes.saturating_add(body);
                gathered.push(ticket);
            }
            if gathered.len() >= batching.size || bytes >= batching.bytes {
                break;
            }
            next = match self.counter.try_one() {
                Some(ticket) => Some(ticket),
                // What waits already is let go at its time, what is still to be taken waits.
                None if gathered.is_empty() => break,
                None => timeout_at(deadline, self.counter.one())
                    .await
                    .ok()
                    .flatten(),
            };
        }
        gathered
    }
}

/// Where the verdicts on the messages of a batch go, each as soon as it is known.
#[derive(Debug)]
pub struct Verdicts {
    pub(super) tickets: Vec<Arc<Ticket>>,
    pub(super) words: mpsc::Sender<Word>,
    pub(super) began: std::time::Instant,
    /// How often pieces of the batch had to be run again.
    pub(super) splits: u64,
    /// Of pieces that had to be run again: bytes of what the guest wrote that were dropped.
    pub(super) log_bytes_dropped: u64,
}

impl Verdicts {
    /// What became of the message at this place of the batch. Once for each.
    pub async fn tell(&mut self, place: usize, mut report: Report) {
        report.log_bytes_dropped += std::mem::take(&mut self.log_bytes_dropped);
        let ticket = &self.tickets[place];
        fault_point::reach(Point::Verdict, &ticket.job.claim.message);
        let word = Word::Finished {
            key: self.key(place),
            report,
            took: self.began.elapsed(),
        };
        // Without a driver nobody settles anything: the host is ending.
        drop(self.words.send(word).await);
    }

    /// A piece of the batch faulted, and its halves are run next.
    pub fn split(&mut self, log_bytes_dropped: u64) {
        self.splits += 1;
        self.log_bytes_dropped += log_bytes_dropped;
    }

    fn key(&self, place: usize) -> Key {
        self.tickets[place].key
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::delivery::ledger::Origin;
    use crate::delivery::message::{DeliveryId, Headers, Message};
    use crate::queue::Claim;
    use crate::runtime::gate;
    use crate::runtime::job::Job;
    use crate::wire::Raw;

    const LONG: Duration = Duration::from_secs(600);

    fn ticket(id: u128, body: &'static [u8]) -> Arc<Ticket> {
        let message = Message {
            id: id.to_string().into(),
            queue: "orders".into(),
            body: bytes::Bytes::from_static(body),
            headers: Headers::default(),
            enqueued_ms: 0,
        };
        let key = Key {
            id: DeliveryId(id),
            generation: 1,
        };
        let claim = Claim {
            id: DeliveryId(id),
            origin: Origin::Fresh,
            native: 1,
            header: 0,
            expires_at_ms: None,
            message,
            raw: Raw::Value(bytes::Bytes::new()),
            defect: None,
        };
        let job = Job::new(claim, &gate::Limits::default());
        Arc::new(Ticket::new(key, Arc::new(job), Some(1), Duration::ZERO))
    }

    fn counter() -> (async_channel::Sender<Arc<Ticket>>, Counter) {
        let (sender, tickets) = async_channel::bounded(64);
        (sender, Counter::new(tickets))
    }

    fn batching(size: usize, wait: Duration) -> Batching {
        Batching {
            size,
            wait,
            bytes: 100,
        }
    }

    async fn gather(counter: &Counter, batching: &Batching) -> Vec<u128> {
        let first = counter.first().await.unwrap();
        let gathered = first.gather(batching).await;
        gathered.iter().map(|ticket| ticket.key.id.0).collect()
    }

    #[tokio::test]
    async fn a_full_batch_waits_for_nothing() {
        let (sender, counter) = counter();
        for id in 1..=5 {
            sender.try_send(ticket(id, b"")).unwrap();
        }
        let batching = batching(2, LONG);
        assert_eq!(gather(&counter, &batching).await, [1, 2]);
        assert_eq!(gather(&counter, &batching).await, [3, 4]);
        // What never comes is not waited for where the host is ending.
        sender.close();
        assert_eq!(gather(&counter, &batching).await, [5]);
        assert!(counter.first().await.is_none());
    }

    #[tokio::test]
    async fn a_lone_message_waits_so_long_and_no_longer() {
        let (sender, counter) = counter();
        sender.try_send(ticket(1, b"")).unwrap();
        let wait = Duration::from_millis(50);
        let batching = batching(2, wait);
        let began = Instant::now();
        let late = async {
            tokio::time::sleep(2 * wait).await;
            sender.try_send(ticket(2, b"")).unwrap();
        };
        let first = async {
            let gathered = gather(&counter, &batching).await;
            (gathered, began.elapsed())
        };
        let ((gathered, waited), ()) = tokio::join!(first, late);
        assert_eq!(gathered, [1]);
        assert!(waited >= wait);
        assert_eq!(gather(&counter, &batching).await, [2]);
    }

    #[tokio::test]
    async fn what_comes_meanwhile_goes_with_it() {
        let (sender, counter) = counter();
        sender.try_send(ticket(1, b"")).unwrap();
        let batching = batching(2, LONG);
        let later = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.try_send(ticket(2, b"")).unwrap();
        };
        let (gathered, ()) = tokio::join!(gather(&counter, &batching), later);
        assert_eq!(gathered, [1, 2]);
    }

    #[tokio::test]
    async fn slots_take_turns_so_that_what_comes_together_goes_together() {
        let (sender, counter) = counter();
        let batching = batching(8, LONG);
        let slots = [(); 4].map(|()| {
            let counter = counter.clone();
            tokio::spawn(async move { gather(&counter, &batching).await })
        });
        for id in 0..32 {
            tokio::task::yield_now().await;
            sender.try_send(ticket(id, b"")).unwrap();
        }
        for slot in slots {
            assert_eq!(slot.await.unwrap().len(), 8);
        }
    }

    #[tokio::test]
    async fn what_the_driver_takes_back_is_no_part_of_it() {
        let (sender, counter) = counter();
        let revoked = ticket(1, b"");
        sender.try_send(Arc::clone(&revoked)).unwrap();
        sender.try_send(ticket(2, b"")).unwrap();
        sender.try_send(ticket(3, b"")).unwrap();
        assert!(revoked.revoke());
        assert_eq!(gather(&counter, &batching(2, LONG)).await, [2, 3]);
        // Nothing but that: the turn ends at once, and nobody waits for others.
        let revoked = ticket(4, b"");
        sender.try_send(Arc::clone(&revoked)).unwrap();
        assert!(revoked.revoke());
        assert!(gather(&counter, &batching(2, LONG)).await.is_empty());
    }

    #[tokio::test]
    async fn many_bytes_are_enough() {
        let (sender, counter) = counter();
        for id in 1..=4 {
            sender.try_send(ticket(id, &[0; 60])).unwrap();
        }
        assert_eq!(gather(&counter, &batching(16, LONG)).await, [1, 2]);
    }
}
