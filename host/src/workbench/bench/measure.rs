//! One measurement: a queue full of messages, the real loop, and its cost.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::through::Through;
use super::timed::{SENT, Timed, Times};
use crate::delivery::ledger;
use crate::delivery::policy::{OnCap, OnFault, Policy};
use crate::publish::{BATCH_MESSAGES, Outgoing, Publisher};
use crate::queue::stream::Retention;
use crate::redis::connection::{Connector, Link};
use crate::redis::usage;
use crate::runtime::{self, Batching, Control, Driver, Handler};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::workbench::Error;

/// How often the counters are read: small against the seconds that a measurement takes.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// A measurement without progress for this long has failed.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// How long messages are sent at a steady rate to measure their journey.
const PACED_FOR: Duration = Duration::from_secs(2);
const PACE: Duration = Duration::from_millis(1);
/// How far a publisher may be ahead of the handler where the queue holds no messages: well within the
/// buffer of a subscription.
const AHEAD_MAX: u64 = 4096;

/// The load of a measurement.
#[derive(Clone, Debug)]
pub struct Load {
    /// The kind of queue.
    pub through: Through,
    /// What is trimmed of a stream.
    pub retention: Retention,
    /// The messages of a round.
    pub messages: u64,
    /// The body of each.
    pub body: Bytes,
    /// How many attempts run at a time.
    pub concurrency: usize,
    /// How many messages are read ahead.
    pub prefetch: usize,
    /// Messages per second of the steady part; 0 = there is no such part.
    pub rate: u32,
    /// How messages are gathered for a handler of batches.
    pub batching: Option<Batching>,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// From the first read to the last acknowledgement.
    pub(super) elapsed: Duration,
    /// CPU time of this process in that time.
    pub(super) host_cpu: Duration,
    /// CPU time of Redis in that time.
    pub(super) redis_cpu: Duration,
    /// The peak memory of this process, in bytes.
    pub(super) peak_memory: u64,
    /// How long calls took under full load.
    pub(super) calls: Vec<Duration>,
    /// From sending to the answer, at the steady rate.
    pub(super) journeys: Vec<Duration>,
}

/// A queue of its own, on this server.
pub(super) struct Bench<'a> {
    pub(super) connector: &'a Connector,
    pub(super) load: &'a Load,
    pub(super) attempts: &'a Handle,
}

impl Bench<'_> {
    /// Measure a handler: first a full queue, then a steady rate.
    pub(super) async fn measure<H: Handler>(
        &self,
        handler: impl Fn() -> H,
    ) -> Result<Measured, Error> {
        let through = self.load.through;
        self.on_new_key(async |key, link| {
            if through.holds() {
                self.preload(key, through).await?;
            }
            let mut measured = self.full(key, handler(), link).await?;
            if self.load.rate > 0 {
                measured.journeys = self.paced(key, handler()).await?;
            }
            Ok(measured)
        })
        .await
    }

    async fn on_new_key<T>(
        &self,
        measure: impl AsyncFnOnce(&str, &Link) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let key = format!("hostler:bench:{:08x}", fastrand::u32(..));
        let link = self.connector.link("bench");
        let measured = measure(&key, &link).await;
        let removed = usage::remove(&link, &Through::keys(&key)).await;
        let measured = measured?;
        removed?;
        Ok(measured)
    }

    async fn preload(&self, key: &str, through: Through) -> Result<(), Error> {
        let publisher = Publisher::new(self.connector, through.destination(key));
        let message = Outgoing::new(self.load.body.clone());
        publish_copies(&publisher, message, self.load.messages).await
    }

    /// Publish as fast as the messages are handled: a channel does not hold them.
    async fn feed(&self, key: &str, running: &Running) -> Result<(), Error> {
        let publisher = Publisher::new(self.connector, self.load.through.destination(key));
        let batch = vec![Outgoing::new(self.load.body.clone()); BATCH_MESSAGES];
        let (mut sent, mut last) = (0, Instant::now());
        while sent < self.load.messages {
            let ahead = sent - running.metrics.summary().acked.min(sent);
            let room = (AHEAD_MAX - ahead.min(AHEAD_MAX)).min(self.load.messages - sent);
            if room == 0 {
                // The count of the messages reports the error.
                if last.elapsed() > STALLED_AFTER {
                    return Ok(());
                }
                sleep(POLL_EVERY).await;
                continue;
            }
            let now = usize::try_from(room).unwrap_or(usize::MAX).min(batch.len());
            publisher.publish_all(&batch[..now]).await?;
            sent += now as u64;
            last = Instant::now();
        }
        Ok(())
    }

    async fn full<H: Handler>(
        &self,
        key: &str,
        handler: H,
        link: &Link,
    ) -> Result<Measured, Error> {
        let costs = Costs::begin(link).await?;
        let running = self.start(key, handler).await?;
        let elapsed = if self.load.through.holds() {
            running.until_done(self.load.messages).await?
        } else {
            let done = running.until_done(self.load.messages);
            let ((), elapsed) = tokio::try_join!(self.feed(key, &running), done)?;
            elapsed
        };
        let measured = costs.end(link, elapsed).await?;
        let times = running.stop().await?;
        Ok(Measured {
            calls: times.calls,
            ..measured
        })
    }

    async fn paced<H: Handler>(&self, key: &str, handler: H) -> Result<Vec<Duration>, Error> {
        let running = self.start(key, handler).await?;
        let publisher = Publisher::new(self.connector, self.load.through.destination(key));
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < PACED_FOR {
            let scheduled = ticks.tick().await.into_std();
            // A message counts as sent when it was due: a slow server or loop is part of the latency.
            // A late timer is not.
            let now = Instant::now();
            let on_time = now.saturating_duration_since(scheduled) < 2 * PACE;
            let stamp = if on_time { now } else { scheduled };
            let stamp = stamp.saturating_duration_since(running.start).as_nanos();
            let due = (began.elapsed().as_secs_f64() * f64::from(self.load.rate)) as u64;
            let message = Outgoing::new(self.load.body.clone()).header(SENT, stamp.to_string());
            let batch = vec![message; usize::try_from(due - sent).unwrap_or(0)];
            sent = due;
            publisher.publish_all(&batch).await?;
        }
        running.until_done(sent).await?;
        Ok(running.stop().await?.journeys)
    }

    async fn start<H: Handler>(&self, key: &str, handler: H) -> Result<Running, Error> {
        let load = self.load;
        let queue = load.through.open(self.connector, key, load.retention);
        let queue = queue.await?;
        let start = Instant::now();
        let handler = Arc::new(Timed::new(handler, start));
        let times = handler.times();
        let metrics = Arc::<Metrics>::default();
        let (control, commands) = mpsc::channel(1);
        let driver = Driver::new(
            queue,
            &handler,
            self.settings(),
            Arc::clone(&metrics),
            Health::default(),
            self.attempts,
        );
        Ok(Running {
            start,
            metrics,
            control,
            times,
            driver: tokio::spawn(driver.run(commands)),
        })
    }

    fn settings(&self) -> runtime::Settings {
        let defaults = runtime::Settings::new(Policy {
            on_cap: OnCap::DeadLetter,
            on_fault: OnFault::Requeue,
            ..Policy::default()
        });
        runtime::Settings {
            ledger: ledger::Settings {
                concurrency: self.load.concurrency,
                batch: self.load.batching.map_or(1, |batching| batching.size),
                prefetch_max: self.load.prefetch,
                ..defaults.ledger
            },
            ..defaults
        }
    }
}

/// What a measurement costs, from its beginning.
pub(super) struct Costs {
    began: Instant,
    host: Duration,
    redis: Duration,
}

impl Costs {
    pub(super) async fn begin(link: &Link) -> Result<Self, Error> {
        forget_peak();
        Ok(Self {
            redis: usage::cpu(link).await?,
            host: cpu_of_this_process(),
            began: Instant::now(),
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) async fn end(self, link: &Link, elapsed: Duration) -> Result<Measured, Error> {
        let host_cpu = cpu_of_this_process().saturating_sub(self.host);
        let redis_cpu = usage::cpu(link).await?.saturating_sub(self.redis);
        Ok(Measured {
            elapsed,
            host_cpu,
            redis_cpu,
            peak_memory: peak(),
            ..Measured::default()
        })
    }
}

/// A running loop.
struct Running {
    start: Instant,
    metrics: Arc<Metrics>,
    control: mpsc::Sender<Control>,
    times: Arc<parking_lot::Mutex<Times>>,
    driver: tokio::task::JoinHandle<runtime::Exit>,
}

impl Running {
    /// Wait until this many messages are acknowledged.
    async fn until_done(&self, messages: u64) -> Result<Duration, Error> {
        let mut last = (0, Instant::now());
        loop {
            let summary = self.metrics.summary();
            if summary.acked >= messages {
                return Ok(self.start.elapsed());
            }
            let refused = summary.requeued + summary.discarded + summary.faults.len() as u64;
            if refused > 0 {
                let faults: Vec<&str> = summary.faults.into_keys().collect();
                let what = match faults.is_empty() {
                    true => "the handler does not acknowledge every message".to_owned(),
                    false => format!("the handler fails: {}", faults.join(", ")),
                };
                let hint = "measure with one that acknowledges any body";
                return Err(Error::handler(what, hint));
            }
            if summary.acked > last.0 {
                last = (summary.acked, Instant::now());
            } else if last.1.elapsed() > STALLED_AFTER {
                let what = format!("only {} of {messages} messages were handled", last.0);
                return Err(Error::bug(what));
            }
            sleep(POLL_EVERY).await;
        }
    }

    async fn stop(self) -> Result<Times, Error> {
        // The channel is closed if the loop has ended already.
        drop(self.control.send(Control::Drain).await);
        self.driver.await.map_err(Error::bug)?;
        // The slots end by themselves after the loop.
        let began = Instant::now();
        while Arc::strong_count(&self.times) > 1 && began.elapsed() < STALLED_AFTER {
            sleep(POLL_EVERY).await;
        }
        Ok(std::mem::take(&mut *self.times.lock()))
    }
}

/// Publish this message `count` times, in large batches.
pub(super) async fn publish_copies(
    publisher: &Publisher,
    message: Outgoing,
    count: u64,
) -> Result<(), Error> {
    let batch = vec![message; BATCH_MESSAGES];
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let now = left.min(batch.len());
        publisher.publish_all(&batch[..now]).await?;
        left -= now;
    }
    Ok(())
}

fn cpu_of_this_process() -> Duration {
    let duration = |time: TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| duration(usage.user_time()) + duration(usage.system_time()))
        .unwrap_or_default()
}

/// Reset the kernel's record of the peak memory. Where it cannot, the peak is that of the process so
/// far.
fn forget_peak() {
    if let Err(error) = fs::write("/proc/self/clear_refs", "5") {
        tracing::debug!(%error, "the peak memory is that of all rounds so far");
    }
}

/// The peak memory since then, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
