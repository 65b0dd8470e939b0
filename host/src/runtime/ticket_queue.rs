//! The queue of tickets from which the slots take their messages.
//!
//! For a handler of batches, one slot at a time gathers messages. So messages that come together go
//! together; otherwise each slot would get one of them. A message waits for others from the moment it is
//! taken, for [`Batching::wait`] at most. The slot takes messages that are already here without waiting.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::runtime::handler::Batching;
use crate::runtime::job::Ticket;

/// See the module. Clones share one queue.
#[derive(Clone, Debug)]
pub(super) struct TicketQueue {
    tickets: async_channel::Receiver<Arc<Ticket>>,
    gathering: Arc<Mutex<()>>,
}

impl TicketQueue {
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

    /// The next ticket; `None` = the host is ending. Dropping the future loses nothing.
    pub(super) async fn one(&self) -> Option<Arc<Ticket>> {
        self.tickets.recv().await.ok()
    }

    /// Wait until it is this slot's turn to gather, and a ticket is there.
    pub(super) async fn first(&self) -> Option<First<'_>> {
        let turn = self.gathering.lock().await;
        let ticket = self.one().await?;
        Some(First {
            queue: self,
            ticket,
            turn,
        })
    }
}

/// The first ticket of a batch, and the turn to gather the others.
#[derive(Debug)]
pub(super) struct First<'a> {
    queue: &'a TicketQueue,
    ticket: Arc<Ticket>,
    #[expect(dead_code, reason = "held until all are gathered")]
    turn: tokio::sync::MutexGuard<'a, ()>,
}

impl First<'_> {
    /// The tickets of a batch, all taken. Empty if the driver took them all back.
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
            next = match self.queue.try_one() {
                Some(ticket) => Some(ticket),
                // Without a ticket nothing waits: end the turn.
                None if gathered.is_empty() => break,
                None => timeout_at(deadline, self.queue.one()).await.ok().flatten(),
            };
        }
        gathered
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::delivery::ledger::{Key, Origin};
    use crate::delivery::message::{DeliveryId, Headers, Message};
    use crate::queue::Claim;
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
            is_duplicate: false,
        };
        let job = Job::new(claim, None);
        Arc::new(Ticket::new(key, Arc::new(job), Some(1), Duration::ZERO))
    }

    fn queue() -> (async_channel::Sender<Arc<Ticket>>, TicketQueue) {
        let (sender, tickets) = async_channel::bounded(64);
        (sender, TicketQueue::new(tickets))
    }

    fn batching(size: usize, wait: Duration) -> Batching {
        Batching {
            size,
            wait,
            bytes: 100,
        }
    }

    async fn gather(queue: &TicketQueue, batching: &Batching) -> Vec<u128> {
        let first = queue.first().await.unwrap();
        let gathered = first.gather(batching).await;
        gathered.iter().map(|ticket| ticket.key.id.0).collect()
    }

    #[tokio::test]
    async fn a_full_batch_waits_for_nothing() {
        let (sender, queue) = queue();
        for id in 1..=5 {
            sender.try_send(ticket(id, b"")).unwrap();
        }
        let batching = batching(2, LONG);
        assert_eq!(gather(&queue, &batching).await, [1, 2]);
        assert_eq!(gather(&queue, &batching).await, [3, 4]);
        // A host that is ending waits for nothing.
        sender.close();
        assert_eq!(gather(&queue, &batching).await, [5]);
        assert!(queue.first().await.is_none());
    }

    #[tokio::test]
    async fn a_single_message_waits_for_others_until_the_deadline() {
        let (sender, queue) = queue();
        sender.try_send(ticket(1, b"")).unwrap();
        let wait = Duration::from_millis(50);
        let batching = batching(2, wait);
        let began = Instant::now();
        let late = async {
            tokio::time::sleep(2 * wait).await;
            sender.try_send(ticket(2, b"")).unwrap();
        };
        let first = async {
            let gathered = gather(&queue, &batching).await;
            (gathered, began.elapsed())
        };
        let ((gathered, waited), ()) = tokio::join!(first, late);
        assert_eq!(gathered, [1]);
        assert!(waited >= wait);
        assert_eq!(gather(&queue, &batching).await, [2]);
    }

    #[tokio::test]
    async fn a_message_that_comes_while_a_batch_waits_joins_it() {
        let (sender, queue) = queue();
        sender.try_send(ticket(1, b"")).unwrap();
        let batching = batching(2, LONG);
        let later = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.try_send(ticket(2, b"")).unwrap();
        };
        let (gathered, ()) = tokio::join!(gather(&queue, &batching), later);
        assert_eq!(gathered, [1, 2]);
    }

    #[tokio::test]
    async fn slots_gather_in_turns_so_that_batches_are_full() {
        let (sender, queue) = queue();
        let batching = batching(8, LONG);
        let slots = [(); 4].map(|()| {
            let queue = queue.clone();
            tokio::spawn(async move { gather(&queue, &batching).await })
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
    async fn a_batch_leaves_out_revoked_tickets() {
        let (sender, queue) = queue();
        let revoked = ticket(1, b"");
        sender.try_send(Arc::clone(&revoked)).unwrap();
        sender.try_send(ticket(2, b"")).unwrap();
        sender.try_send(ticket(3, b"")).unwrap();
        assert!(revoked.revoke());
        assert_eq!(gather(&queue, &batching(2, LONG)).await, [2, 3]);
        // Only revoked tickets: the turn ends at once.
        let revoked = ticket(4, b"");
        sender.try_send(Arc::clone(&revoked)).unwrap();
        assert!(revoked.revoke());
        assert!(gather(&queue, &batching(2, LONG)).await.is_empty());
    }

    #[tokio::test]
    async fn a_batch_ends_at_its_bytes() {
        let (sender, queue) = queue();
        for id in 1..=4 {
            sender.try_send(ticket(id, &[0; 60])).unwrap();
        }
        assert_eq!(gather(&queue, &batching(16, LONG)).await, [1, 2]);
    }
}
