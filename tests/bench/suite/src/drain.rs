//! Consumers empty a queue. The server says when they begin and when they are done, so any consumer is measured
//! in the same way.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Process, Program};
use crate::server::Server;
use crate::{Outcome, fail};

/// How long the suite waits before it asks the server again. Each question takes time from the consumers, so it asks
/// rarely while much is left, and often at the end.
const POLL_LEAST: Duration = Duration::from_millis(1);
const POLL_MOST: Duration = Duration::from_millis(50);
/// The least rate, in messages per second: a measurement below it has failed.
const LEAST_RATE: u64 = 4000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Stream,
    List,
}

/// What consumers have to do.
pub struct Work<'a> {
    pub kind: Kind,
    pub messages: u64,
    /// Pending deliveries that are no part of this work.
    pub others: u64,
    /// What becomes of each message, in the words of the host's summary; `None`: the consumer prints none.
    pub fate: Option<&'a str>,
}

impl Work<'_> {
    pub fn new(messages: u64) -> Self {
        Self {
            kind: Kind::Stream,
            messages,
            others: 0,
            fate: Some("acked"),
        }
    }
}

/// What it cost. Times of CPU are microseconds for each message.
#[derive(Clone, Debug)]
pub struct Drained {
    pub per_second: f64,
    pub consumer_us: f64,
    /// The same by the names of threads.
    pub threads_us: BTreeMap<String, f64>,
    pub redis_us: f64,
    /// The peak of all consumers together, in bytes.
    pub peak_memory: f64,
}

impl Drained {
    pub fn json(&self) -> Value {
        json!({
            "messages_per_second": self.per_second.round(),
            "consumer_us_per_message": rounded(self.consumer_us),
            "threads_us_per_message": self.threads_us.iter().map(|(name, us)| (name.clone(), json!(rounded(*us))))
                .collect::<serde_json::Map<_, _>>(),
            "redis_us_per_message": rounded(self.redis_us),
            "peak_memory_bytes": self.peak_memory,
        })
    }
}

fn rounded(us: f64) -> f64 {
    (us * 100.0).round() / 100.0
}

/// Consumers that start with the work: it is measured from the first message that one of them takes.
pub fn drain(
    folder: &Path,
    server: &mut Server,
    programs: &[Program],
    work: &Work<'_>,
) -> Outcome<Drained> {
    let started = programs.iter().map(|program| program.start(folder));
    let mut consumers = started.collect::<Outcome<Vec<_>>>()?;
    let watch = Watch::begin(server, &mut consumers, work)?;
    watch.end(server, consumers, work)
}

/// Consumers that wait already when the work comes.
pub fn drain_arriving(
    folder: &Path,
    server: &mut Server,
    programs: &[Program],
    work: &Work<'_>,
    send: impl FnOnce(&mut Server) -> Outcome<()>,
) -> Outcome<Drained> {
    let started = programs.iter().map(|program| program.start(folder));
    let mut consumers = started.collect::<Outcome<Vec<_>>>()?;
    server.wait_for(&mut consumers)?;
    let watch = Watch::from_now(server, &consumers, work)?;
    send(server)?;
    watch.end(server, consumers, work)
}

struct Watch {
    began: Instant,
    /// Messages that are left at the beginning.
    left: u64,
    consumers: Vec<BTreeMap<String, f64>>,
    redis: f64,
}

impl Watch {
    fn begin(server: &mut Server, consumers: &mut [Process], work: &Work<'_>) -> Outcome<Self> {
        let deadline = deadline(work);
        while left(server, work)?.0 == work.messages {
            for consumer in &mut *consumers {
                consumer.check()?;
            }
            if Instant::now() > deadline {
                return fail("no consumer takes a message");
            }
            std::thread::sleep(POLL_LEAST);
        }
        let mut watch = Self::from_now(server, consumers, work)?;
        let (unread, pending) = left(server, work)?;
        watch.left = unread + pending;
        if watch.left == 0 {
            return fail("there are too few messages to measure anything");
        }
        watch.began = Instant::now();
        Ok(watch)
    }

    fn from_now(server: &Server, consumers: &[Process], work: &Work<'_>) -> Outcome<Self> {
        Ok(Self {
            began: Instant::now(),
            left: work.messages,
            consumers: consumers
                .iter()
                .map(Process::cpu_by_thread)
                .collect::<Outcome<_>>()?,
            redis: server.process.cpu()?,
        })
    }

    fn end(
        self,
        server: &mut Server,
        mut consumers: Vec<Process>,
        work: &Work<'_>,
    ) -> Outcome<Drained> {
        let deadline = deadline(work);
        loop {
            let (unread, pending) = left(server, work)?;
            let rest = unread + pending;
            if rest == 0 {
                break;
            }
            for consumer in &mut consumers {
                consumer.check()?;
            }
            if Instant::now() > deadline {
                return fail(format!(
                    "after a long time this is left (unread, pending): {:?}",
                    (unread, pending)
                ));
            }
            // A quarter of the time that the rest takes if it goes on like this.
            let done = self.left.saturating_sub(rest).max(1) as f64;
            let pause = self.began.elapsed().mul_f64(rest as f64 / done / 4.0);
            std::thread::sleep(pause.clamp(POLL_LEAST, POLL_MOST));
        }
        let elapsed = self.began.elapsed();
        let redis = server.process.cpu()? - self.redis;
        let (mut cpu, mut peak_memory) = (Vec::new(), 0.0);
        for consumer in &consumers {
            cpu.push(consumer.cpu_by_thread()?);
            peak_memory += consumer.memory("VmHWM:")?;
        }
        let mut fates = 0;
        for consumer in consumers {
            let printed = consumer.stop()?;
            if let Some(fate) = work.fate {
                fates += count(&printed, fate)?;
            }
        }
        if work.fate.is_some() && fates != work.messages {
            return fail(format!(
                "{fates} messages of {} ended as they should",
                work.messages
            ));
        }
        let us = 1e6 / self.left as f64;
        let mut threads_us = BTreeMap::new();
        for (before, after) in self.consumers.iter().zip(&cpu) {
            for (name, after) in after {
                let spent = after - before.get(name).copied().unwrap_or_default();
                *threads_us.entry(name.clone()).or_default() += spent * us;
            }
        }
        Ok(Drained {
            per_second: self.left as f64 / elapsed.as_secs_f64(),
            consumer_us: threads_us.values().sum(),
            threads_us,
            redis_us: redis * us,
            peak_memory,
        })
    }
}

fn left(server: &mut Server, work: &Work<'_>) -> Outcome<(u64, u64)> {
    match work.kind {
        Kind::Stream => {
            let (unread, pending) = server.left_of_stream()?;
            Ok((unread, pending.saturating_sub(work.others)))
        }
        Kind::List => server.left_of_list(),
    }
}

fn deadline(work: &Work<'_>) -> Instant {
    Instant::now() + Duration::from_secs(60 + work.messages / LEAST_RATE)
}

/// How many messages had this fate, by the summary that a host prints at its end.
fn count(printed: &str, fate: &str) -> Outcome<u64> {
    let line = printed.lines().last().ok_or("a host printed no summary")?;
    let summary: Value = serde_json::from_str(line)?;
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    Ok(match &summary[fate] {
        Value::Object(reasons) => reasons.values().map(number).sum(),
        value => number(value),
    })
}
