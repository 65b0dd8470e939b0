//! The queue of tickets from which the slots take their messages.
//!
//! The driver puts in several at a time, and each slot takes one when it is free: so no message waits behind a
//! slow call while another slot has nothing to do.
//!
//! For a handler of batches, one slot at a time gathers messages. So messages that come together go
//! together; otherwise each slot would get one of them. A message waits for others from the moment it is
//! taken, for [`Batching::wait`] at most. The slot takes messages that are already here without waiting.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hostler_sync::tokio::time::{Instant, timeout_at};
use hostler_sync::tokio::{self, sync::Notify};
use hostler_sync::{Mutex, MutexGuard};

use crate::{Ticket, Work};

/// How messages are gathered for one call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Batching {
    /// The most messages of a call.
    pub size: usize,
    /// How long the first message waits for others.
    pub wait: Duration,
    /// The slot stops gathering when the bodies have this many bytes.
    pub bytes: usize,
}

/// The turns of the slots to gather.
type Turns = tokio::sync::Mutex<()>;

#[derive(Debug)]
struct Shared<W> {
    state: Mutex<State<W>>,
    /// Wakes slots that wait.
    arrived: Notify,
    /// The most tickets.
    most: usize,
}

#[derive(Debug)]
struct State<W> {
    tickets: VecDeque<Arc<Ticket<W>>>,
    /// How many slots wait.
    waiting: usize,
    is_closed: bool,
}

impl<W> Shared<W> {
    fn state(&self) -> MutexGuard<'_, State<W>> {
        // A panic elsewhere leaves nothing half-written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the driver. Without it the queue is closed.
#[derive(Debug)]
pub struct TicketSender<W>(Arc<Shared<W>>);

/// The end of the slots. Clones share one queue.
#[derive(Debug)]
pub struct TicketQueue<W> {
    shared: Arc<Shared<W>>,
    gathering: Arc<Turns>,
}

impl<W> Clone for TicketQueue<W> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            gathering: Arc::clone(&self.gathering),
        }
    }
}

/// Both ends of a queue for at most `most` tickets.
pub fn channel<W>(most: usize) -> (TicketSender<W>, TicketQueue<W>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            tickets: VecDeque::new(),
            waiting: 0,
            is_closed: false,
        }),
        arrived: Notify::new(),
        most,
    });
    let queue = TicketQueue {
        shared: Arc::clone(&shared),
        gathering: Arc::default(),
    };
    (TicketSender(shared), queue)
}

impl<W> TicketSender<W> {
    /// Put in these tickets, in their order, as far as there is room. Wakes one waiting slot for each.
    pub fn send(&self, tickets: &mut Vec<Arc<Ticket<W>>>) {
        let mut state = self.0.state();
        let room = self.0.most.saturating_sub(state.tickets.len());
        let count = room.min(tickets.len());
        state.tickets.extend(tickets.drain(..count));
        let woken = count.min(state.waiting);
        drop(state);
        for _ in 0..woken {
            self.0.arrived.notify_one();
        }
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.0.state().is_closed = true;
        self.0.arrived.notify_waiters();
    }
}

impl<W> Drop for TicketSender<W> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<W> TicketQueue<W> {
    /// The next ticket, if there is one now.
    pub fn try_one(&self) -> Option<Arc<Ticket<W>>> {
        self.shared.state().tickets.pop_front()
    }

    /// The next ticket; `None` = the host is ending. Dropping the future loses nothing.
    pub async fn one(&self) -> Option<Arc<Ticket<W>>> {
        let mut arrived = pin!(self.shared.arrived.notified());
        let mut waiting = None;
        poll_fn(|context| {
            loop {
                // A ticket that comes from here on wakes this slot.
                let is_woken = arrived.as_mut().poll(context).is_ready();
                let mut state = self.shared.state();
                if let Some(ticket) = state.tickets.pop_front() {
                    return Poll::Ready(Some(ticket));
                }
                if state.is_closed {
                    return Poll::Ready(None);
                }
                if waiting.is_none() {
                    state.waiting += 1;
                    waiting = Some(Waiting(&self.shared));
                }
                if !is_woken {
                    return Poll::Pending;
                }
                // Another slot has the ticket.
                arrived.set(self.shared.arrived.notified());
            }
        })
        .await
    }

    /// Wait until it is this slot's turn to gather, and a ticket is there.
    pub async fn first(&self) -> Option<First<'_, W>> {
        let turn = self.gathering.lock().await;
        let ticket = self.one().await?;
        Some(First {
            queue: self,
            ticket,
            turn,
        })
    }
}

/// A slot that waits.
struct Waiting<'a, W>(&'a Shared<W>);

impl<W> Drop for Waiting<'_, W> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// The first ticket of a batch, and the turn to gather the others.
#[derive(Debug)]
pub struct First<'a, W> {
    queue: &'a TicketQueue<W>,
    ticket: Arc<Ticket<W>>,
    #[expect(dead_code, reason = "held until all are gathered")]
    turn: tokio::sync::MutexGuard<'a, ()>,
}

impl<W: Work> First<'_, W> {
    /// The tickets of a batch, all taken. Empty if the driver took them all back.
    pub async fn gather(self, batching: &Batching) -> Vec<Arc<Ticket<W>>> {
        let deadline = Instant::now() + batching.wait;
        let mut gathered = Vec::new();
        let mut bytes = 0_usize;
        let mut next = Some(self.ticket);
        while let Some(ticket) = next {
            if ticket.take() {
                bytes = bytes.saturating_add(ticket.work.bytes());
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

    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// A message: its number, and the bytes of its body.
    #[derive(Debug)]
    struct Message(usize, usize);

    impl Work for Message {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn ticket(number: usize, bytes: usize) -> Arc<Ticket<Message>> {
        Arc::new(Ticket::new(Message(number, bytes), Some(1), Duration::ZERO))
    }

    fn queue() -> (TicketSender<Message>, TicketQueue<Message>) {
        channel(64)
    }

    impl TicketSender<Message> {
        fn send_one(&self, ticket: Arc<Ticket<Message>>) {
            let mut tickets = vec![ticket];
            self.send(&mut tickets);
            assert!(tickets.is_empty());
        }
    }

    fn batching(size: usize, wait: Duration) -> Batching {
        Batching {
            size,
            wait,
            bytes: 100,
        }
    }

    async fn gather(queue: &TicketQueue<Message>, batching: &Batching) -> Vec<usize> {
        let first = queue.first().await.unwrap();
        let gathered = first.gather(batching).await;
        gathered.iter().map(|ticket| ticket.work.0).collect()
    }

    #[tokio::test]
    async fn a_full_batch_waits_for_nothing() {
        let (sender, queue) = queue();
        for id in 1..=5 {
            sender.send_one(ticket(id, 0));
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
        sender.send_one(ticket(1, 0));
        let wait = Duration::from_millis(50);
        let batching = batching(2, wait);
        let began = Instant::now();
        let late = async {
            tokio::time::sleep(2 * wait).await;
            sender.send_one(ticket(2, 0));
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
        sender.send_one(ticket(1, 0));
        let batching = batching(2, LONG);
        let later = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send_one(ticket(2, 0));
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
            sender.send_one(ticket(id, 0));
        }
        for slot in slots {
            assert_eq!(slot.await.unwrap().len(), 8);
        }
    }

    #[tokio::test]
    async fn a_batch_leaves_out_revoked_tickets() {
        let (sender, queue) = queue();
        let revoked = ticket(1, 0);
        sender.send_one(Arc::clone(&revoked));
        sender.send_one(ticket(2, 0));
        sender.send_one(ticket(3, 0));
        assert!(revoked.revoke());
        assert_eq!(gather(&queue, &batching(2, LONG)).await, [2, 3]);
        // Only revoked tickets: the turn ends at once.
        let revoked = ticket(4, 0);
        sender.send_one(Arc::clone(&revoked));
        assert!(revoked.revoke());
        assert!(gather(&queue, &batching(2, LONG)).await.is_empty());
    }

    #[tokio::test]
    async fn a_batch_ends_at_its_bytes() {
        let (sender, queue) = queue();
        for id in 1..=4 {
            sender.send_one(ticket(id, 60));
        }
        assert_eq!(gather(&queue, &batching(16, LONG)).await, [1, 2]);
    }

    #[tokio::test]
    async fn tickets_that_come_together_wake_a_slot_each() {
        let (sender, queue) = queue();
        let slots = [(); 3].map(|()| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.one().await.unwrap().work.0 })
        });
        while queue.shared.state().waiting < slots.len() {
            tokio::task::yield_now().await;
        }
        sender.send(&mut (1..=3).map(|id| ticket(id, 0)).collect());
        let mut taken = Vec::new();
        for slot in slots {
            taken.push(slot.await.unwrap());
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(queue.shared.state().waiting, 0);
    }

    #[tokio::test]
    async fn what_finds_no_room_stays_with_the_driver() {
        let (sender, queue) = channel(2);
        let mut tickets: Vec<_> = (1..=3).map(|id| ticket(id, 0)).collect();
        sender.send(&mut tickets);
        assert_eq!(tickets.len(), 1);
        assert_eq!(queue.try_one().unwrap().work.0, 1);
        sender.send(&mut tickets);
        assert!(tickets.is_empty());
    }

    #[tokio::test]
    async fn a_slot_that_stops_waiting_passes_its_wake_on() {
        let (sender, queue) = queue();
        let mut first = Box::pin(queue.one());
        let mut second = Box::pin(queue.one());
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        sender.send_one(ticket(1, 0));
        // The first was woken, and goes.
        drop(first);
        assert_eq!(second.await.unwrap().work.0, 1);
        assert_eq!(queue.shared.state().waiting, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn no_ticket_is_lost_between_threads() {
        const ALL: usize = 20_000;
        let (sender, queue) = channel(100);
        let slots = [(); 4].map(|()| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut taken = 0;
                while queue.one().await.is_some() {
                    taken += 1;
                }
                taken
            })
        });
        let mut next = 0;
        let mut tickets = Vec::new();
        while next < ALL || !tickets.is_empty() {
            let more = 1 + next % 9;
            tickets.extend((0..more).map(|id| ticket(id, 0)));
            next += more;
            while !tickets.is_empty() {
                sender.send(&mut tickets);
                tokio::task::yield_now().await;
            }
        }
        sender.close();
        let mut taken = 0;
        for slot in slots {
            taken += slot.await.unwrap();
        }
        assert_eq!(taken, next);
    }
}
