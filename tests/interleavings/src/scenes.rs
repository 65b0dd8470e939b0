//! The scenes. Each is one run of its threads; shuttle repeats it with other orders.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hostler_handover::slot_events::{self, EventReceiver, EventSender};
use hostler_handover::ticket_queue::{self, Batching};
use hostler_handover::{Cached, ReadMostly, Work};
use hostler_sync::tokio;
use shuttle::future::{block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread;

/// A delivery, by its number.
struct Delivery(usize);

impl Work for Delivery {
    fn bytes(&self) -> usize {
        0
    }
}

type Ticket = hostler_handover::Ticket<Delivery>;
type TicketQueue = ticket_queue::TicketQueue<Delivery>;
type TicketSender = ticket_queue::TicketSender<Delivery>;

fn channel() -> (TicketSender, TicketQueue) {
    ticket_queue::channel(TICKETS)
}

/// A ticket of a delivery; without an attempt its slot has to ask.
fn ticket(number: usize, attempt: Option<u32>) -> Arc<Ticket> {
    Arc::new(Ticket::new(Delivery(number), attempt, Duration::ZERO))
}

/// A slot that takes a ticket while the driver takes it back: one of them has it.
pub fn a_ticket_is_taken_or_revoked_and_never_both() {
    let ticket = ticket(0, Some(1));
    let slot = {
        let ticket = Arc::clone(&ticket);
        thread::spawn(move || ticket.take())
    };
    let revoked = ticket.revoke();
    let taken = slot.join().unwrap();
    assert!(taken != revoked);
    // It stays with its owner.
    assert!(!ticket.take() && !ticket.revoke());
}

/// A lease that is confirmed by two replies at once keeps the later one.
pub fn a_lease_keeps_its_latest_confirmation() {
    let ticket = ticket(0, Some(1));
    let threads = [1, 2].map(|seconds| {
        let ticket = Arc::clone(&ticket);
        thread::spawn(move || {
            ticket.renew(Duration::from_secs(seconds));
            ticket.leased()
        })
    });
    let seen = threads.map(|thread| thread.join().unwrap());
    assert!(seen[0] >= Duration::from_secs(1));
    assert_eq!(seen[1], Duration::from_secs(2));
    assert_eq!(ticket.leased(), Duration::from_secs(2));
}

/// The events that a slot sends to the driver.
#[derive(Debug)]
enum Event {
    /// It has the ticket, and may not start without the driver.
    Asks(usize),
    /// It ran, or was denied.
    Ended { number: usize, ran: bool },
}

/// How many tickets a driver hands out. The queue has room for all of them, as the host's has.
const TICKETS: usize = 5;
const SLOTS: usize = 2;

/// What the driver knows in the end.
#[derive(Default)]
struct Seen {
    ran: [u32; TICKETS],
    denied: [u32; TICKETS],
    revoked: [u32; TICKETS],
}

/// A slot as in the host's `runtime/executor.rs`: it takes tickets, asks where it must, and reports their results.
async fn slot(queue: TicketQueue, events: EventSender<Event>) {
    let tickets = async {
        while let Some(ticket) = queue.one().await {
            if !ticket.take() {
                continue;
            }
            let number = ticket.work.0;
            let mut attempt = ticket.attempt;
            if attempt.is_none() {
                events.send(Event::Asks(number)).unwrap();
                attempt = ticket.decision().await;
            }
            let ran = attempt.is_some();
            // A ticket without an attempt got its number from the driver's answer: the same one.
            assert!(attempt.is_none_or(|attempt| attempt == 1 + number as u32));
            events.send(Event::Ended { number, ran }).unwrap();
        }
    };
    events.flushing(tickets).await;
}

/// The driver: it hands out tickets as far as there is room, takes some back, and answers those who ask.
async fn drive(sender: TicketSender, events: EventReceiver<Event>) -> Seen {
    let mut seen = Seen::default();
    let all: Vec<_> = (0..TICKETS)
        .map(|number| ticket(number, (number % 2 == 0).then_some(1 + number as u32)))
        .collect();
    let mut sent = 0;
    let mut left = TICKETS;
    let mut told = Vec::new();
    while left > 0 {
        if sent < TICKETS {
            let more = thread_rng().gen_range(1..=TICKETS - sent);
            let mut more = all[sent..sent + more].to_vec();
            sent += more.len();
            sender.send(&mut more);
        }
        if thread_rng().gen_bool(0.3) {
            let number = thread_rng().gen_range(0..sent);
            if all[number].revoke() {
                seen.revoked[number] += 1;
                left -= 1;
                continue;
            }
        }
        match sent < TICKETS {
            true => events.take(&mut told),
            false => events.wait(&mut told).await,
        }
        for event in told.drain(..) {
            match event {
                Event::Asks(number) if thread_rng().gen_bool(0.3) => all[number].deny(),
                Event::Asks(number) => all[number].grant(1 + number as u32),
                Event::Ended { number, ran: true } => {
                    seen.ran[number] += 1;
                    left -= 1;
                }
                Event::Ended { number, ran: false } => {
                    seen.denied[number] += 1;
                    left -= 1;
                }
            }
        }
    }
    drop(sender);
    seen
}

/// Every ticket ends once: it runs, is denied or is taken back. No slot waits for ever, and none outlives the
/// queue.
pub fn each_ticket_ends_once_and_every_slot_ends() {
    let (sender, queue) = channel();
    let (event_sender, events) = slot_events::channel();
    let slots = [(); SLOTS].map(|()| {
        let slot = slot(queue.clone(), event_sender.clone());
        thread::spawn(move || block_on(slot))
    });
    let seen = block_on(drive(sender, events));
    for slot in slots {
        slot.join().unwrap();
    }
    for number in 0..TICKETS {
        let ends = [seen.ran[number], seen.denied[number], seen.revoked[number]];
        assert_eq!(ends.iter().sum::<u32>(), 1, "ticket {number}: {ends:?}");
    }
}

/// Two tickets that come together go to two slots that wait: neither ticket waits behind the call of the other.
pub fn tickets_that_come_together_wake_a_slot_each() {
    let (sender, queue) = channel();
    let slots = [(); SLOTS].map(|()| {
        let queue = queue.clone();
        // It takes no second one.
        thread::spawn(move || block_on(queue.one()).unwrap().work.0)
    });
    let mut two = vec![ticket(0, None), ticket(1, None)];
    sender.send(&mut two);
    let mut taken = slots.map(|slot| slot.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, [0, 1]);
}

/// Poll a future `times` times; `None` = it was not ready, and is dropped.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls >= times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A slot that gives up waiting loses no ticket: its wake-up wakes another.
pub fn a_slot_that_stops_waiting_loses_no_ticket() {
    let (sender, queue) = channel();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = |queue: TicketQueue, impatient: bool| {
        let taken = Arc::clone(&taken);
        async move {
            if impatient && polled(queue.one(), 1).await.flatten().is_some() {
                taken.fetch_add(1, Ordering::SeqCst);
            }
            while !impatient && queue.one().await.is_some() {
                taken.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let slots = [false, true].map(|impatient| {
        let slot = count(queue.clone(), impatient);
        thread::spawn(move || block_on(slot))
    });
    let mut outside = vec![ticket(0, None), ticket(1, None)];
    sender.send(&mut outside);
    assert!(outside.is_empty());
    // The patient slot takes the rest: no other slot would.
    while taken.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    sender.close();
    for slot in slots {
        slot.join().unwrap();
    }
}

/// Slots that gather batches in turns lose no ticket, and end when the queue closes.
pub fn batches_hold_each_ticket_once() {
    let (sender, queue) = channel();
    let slots = [(); SLOTS].map(|()| {
        let queue = queue.clone();
        thread::spawn(move || {
            block_on(async {
                let batching = Batching {
                    size: 2,
                    wait: Duration::from_secs(600),
                    bytes: 100,
                };
                let mut had = Vec::new();
                while let Some(first) = queue.first().await {
                    let batch = first.gather(&batching).await;
                    assert!(batch.len() <= 2);
                    had.extend(batch.iter().map(|ticket| ticket.work.0));
                }
                had
            })
        })
    });
    let all: Vec<_> = (0..TICKETS).map(|number| ticket(number, None)).collect();
    for two in all.chunks(2) {
        sender.send(&mut two.to_vec());
    }
    let revoked = all[0].revoke();
    drop(sender);
    let mut had: Vec<usize> = slots
        .into_iter()
        .flat_map(|slot| slot.join().unwrap())
        .collect();
    had.sort_unstable();
    let expected: Vec<usize> = (usize::from(revoked)..TICKETS).collect();
    assert_eq!(had, expected);
}

/// The driver hears of every event, although a slot wakes it only for several, or when it stops.
pub fn no_event_is_lost_while_the_driver_sleeps() {
    const EACH: usize = 3;
    let (sender, receiver) = slot_events::channel();
    let slots = [(); SLOTS].map(|()| {
        let sender = sender.clone();
        thread::spawn(move || {
            block_on(async {
                let slot = async {
                    for event in 0..EACH {
                        sender.send(event).unwrap();
                        if thread_rng().gen_bool(0.5) {
                            spawn(async {}).await.unwrap();
                        }
                    }
                };
                sender.flushing(slot).await;
            });
        })
    });
    let mut told = Vec::new();
    block_on(async {
        while told.len() < SLOTS * EACH {
            receiver.wait(&mut told).await;
        }
    });
    for slot in slots {
        slot.join().unwrap();
    }
    told.sort_unstable();
    assert_eq!(told, [0, 0, 1, 1, 2, 2]);
    // A slot that comes too late learns that the driver is gone.
    drop(receiver);
    assert!(sender.send(0).is_none());
}

/// A change is one step: who looks after it has returned sees it, and no reader sees the old value again.
pub fn a_change_holds_for_all_who_look_after_it() {
    const CHANGES: usize = 3;
    let value = Arc::new(ReadMostly::new(0_usize));
    // How many changes have returned.
    let returned = Arc::new(AtomicUsize::new(0));
    let readers = [(); SLOTS].map(|()| {
        let (value, returned) = (Arc::clone(&value), Arc::clone(&returned));
        thread::spawn(move || {
            let mut cached = Cached::default();
            let mut last = 0;
            for _ in 0..4 {
                let least = returned.load(Ordering::SeqCst);
                let seen = *cached.get(&value, |value| *value);
                assert!(seen >= least, "saw {seen} after change {least}");
                assert!(seen >= last, "saw {seen} after {last}");
                last = seen;
            }
        })
    });
    for change in 1..=CHANGES {
        assert!(value.change(|value| {
            *value += 1;
            true
        }));
        returned.store(change, Ordering::SeqCst);
        // A step that says "nothing changed" leaves the value as it is.
        assert!(!value.change(|_| false));
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(*value.get(), CHANGES);
}

/// A scene with a lost wake-up: so the tests know that shuttle finds one.
pub fn a_lost_wake_up() {
    let notify = Arc::new(tokio::sync::Notify::new());
    let done = Arc::new(AtomicBool::new(false));
    let sleeper = {
        let (notify, done) = (Arc::clone(&notify), Arc::clone(&done));
        thread::spawn(move || {
            block_on(async {
                // Between the look and the wait the wake-up is lost: no slot waits for it yet.
                if !done.load(Ordering::SeqCst) {
                    notify.notified().await;
                }
            });
        })
    };
    done.store(true, Ordering::SeqCst);
    notify.notify_waiters();
    sleeper.join().unwrap();
}
