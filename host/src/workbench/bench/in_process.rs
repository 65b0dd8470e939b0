//! `hostler bench --in-process FILE`: the cost of a component, without Redis.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::timed::percentile;
use super::{BUILD, REUSE, median, rounded};
use crate::delivery::message::{Headers, Message};
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::host::component;
use crate::sandbox::{Cache, Call, LogSink, Sandbox, Settings, World};
use crate::workbench::Error;
use crate::workbench::attempt::Verdict;

/// The longest time of one round of one mode.
const ROUND: Duration = Duration::from_secs(2);

/// What to measure, and how often.
#[derive(Debug)]
pub struct Plan {
    /// The component.
    pub file: PathBuf,
    /// The body of each message.
    pub body: Bytes,
    /// Calls of a round, at most.
    pub calls: u64,
    /// The rounds.
    pub rounds: u32,
    /// Messages of a batch, for a handler of batches.
    pub batch: usize,
}

/// The shape of `--in-process --json`. Times are medians of the rounds.
#[derive(Debug, Serialize)]
pub struct ComponentReport {
    /// The version of hostler.
    pub version: &'static str,
    /// `debug` or `release`.
    pub build: &'static str,
    /// The digest.
    pub handler: String,
    /// The interface that the host calls.
    pub interface: String,
    /// Of the file.
    pub size_bytes: u64,
    /// Of each message.
    pub body_bytes: usize,
    /// The rounds.
    pub rounds: u32,
    /// Compiling it, in a child process.
    pub compile_ms: f64,
    /// Loading it from the cache, with one instance.
    pub cached_start_ms: f64,
    /// The first call of a process that has just loaded it.
    pub first_call_us: f64,
    /// Linear memory of an instance after its first message.
    pub memory_bytes: usize,
    /// The handler's outcome for this body.
    pub outcome: &'static str,
    /// A fresh instance for every message.
    pub fresh: CallFigures,
    /// One instance for ten thousand messages. `None` = a program, whose instances are not reused.
    pub reuse: Option<CallFigures>,
    /// The size of a batch, of a handler of batches.
    pub batch_size: Option<usize>,
    /// A fresh instance for every batch, of a handler of batches: the figures for each message.
    pub batch: Option<CallFigures>,
}

/// Of one slot on one core.
#[derive(Debug, Serialize)]
pub struct CallFigures {
    /// The calls that were measured.
    pub calls: u64,
    /// The median of their times.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The rate.
    pub messages_per_second: f64,
}

/// Measure a component without a queue.
///
/// # Errors
/// It cannot be loaded, or faults.
pub async fn measure_component(plan: &Plan, settings: &Settings) -> Result<ComponentReport, Error> {
    let settings = Settings {
        concurrency: 1,
        ..settings.clone()
    };
    let cache = Scratch::new();
    let with = |reuse: u32, cache: Option<Cache>| Settings {
        reuse,
        cache,
        ..settings.clone()
    };
    let (mut compiles, mut starts, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut memory_bytes, mut outcome) = (0, "ack");
    for _ in 0..plan.rounds {
        let compiled = component::load(&plan.file, &with(1, None))?;
        compiles.push(millis(compiled.describe().compile));
        drop(compiled);
        // This fills the cache.
        let fill = component::load(&plan.file, &with(1, Some(cache.cache())))?;
        drop(fill);
        let began = Instant::now();
        let sandbox = component::load(&plan.file, &with(1, Some(cache.cache())))?;
        starts.push(millis(began.elapsed()));
        if !sandbox.describe().cached {
            let what = "the compiled component was not cached: a cached start cannot be measured";
            return Err(Error::bug(what));
        }
        let mut bench = Calls::new(&sandbox, plan, 1);
        let first = bench.once().await?;
        firsts.push(micros(first.took));
        memory_bytes = first.memory_bytes;
        outcome = first.outcome;
    }
    let fresh = component::load(&plan.file, &with(1, Some(cache.cache())))?;
    let description = fresh.describe().clone();
    let is_program = description.exit_codes.is_some();
    let is_batch = description.world == World::Batch;
    let batch = match is_batch {
        true => Some(Calls::new(&fresh, plan, plan.batch).figures().await?),
        false => None,
    };
    let fresh_figures = Calls::new(&fresh, plan, 1).figures().await?;
    let reuse = match is_program {
        true => None,
        false => {
            let reused = component::load(&plan.file, &with(REUSE, Some(cache.cache())))?;
            Some(Calls::new(&reused, plan, 1).figures().await?)
        }
    };
    Ok(ComponentReport {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        handler: fresh.digest().to_string(),
        interface: description.interface,
        size_bytes: description.size,
        body_bytes: plan.body.len(),
        rounds: plan.rounds,
        compile_ms: rounded(median(compiles)),
        cached_start_ms: rounded(median(starts)),
        first_call_us: rounded(median(firsts)),
        memory_bytes,
        outcome,
        fresh: fresh_figures,
        reuse,
        batch_size: is_batch.then_some(plan.batch),
        batch,
    })
}

/// A cache for this benchmark only: the user's cache is not touched.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!(
            "hostler-bench-{}-{:08x}",
            std::process::id(),
            fastrand::u32(..)
        );
        Self(std::env::temp_dir().join(name))
    }

    fn cache(&self) -> Cache {
        Cache {
            dir: self.0.clone(),
            max_bytes: u64::MAX,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let dir = &self.0;
        if let Err(error) = std::fs::remove_dir_all(dir) {
            tracing::debug!(%error, dir = %dir.display(), "the cache of a benchmark is left behind");
        }
    }
}

/// One call.
struct Once {
    took: Duration,
    memory_bytes: usize,
    outcome: &'static str,
}

/// Calls of one slot.
struct Calls<'a> {
    sandbox: &'a Sandbox,
    plan: &'a Plan,
    slot: crate::sandbox::Slot,
    message: Message,
    /// Messages of a call.
    batch: usize,
    /// Writing the log is not measured; its limits are.
    logs: LogSink,
}

impl<'a> Calls<'a> {
    fn new(sandbox: &'a Sandbox, plan: &'a Plan, batch: usize) -> Self {
        Self {
            batch,
            sandbox,
            plan,
            slot: sandbox.slot(),
            message: Message {
                id: "0-1".into(),
                queue: "bench".into(),
                body: plan.body.clone(),
                headers: Headers::default(),
                enqueued_ms: 0,
            },
            logs: LogSink::Tracing,
        }
    }

    async fn once(&mut self) -> Result<Once, Error> {
        let call = Call {
            message: &self.message,
            attempt: 1,
            max_attempts: 0,
            cancelled: &Arc::default(),
            logs: &self.logs,
            trace: Traced::default(),
            began: Instant::now(),
            journal: None,
            room: self.sandbox.room(),
        };
        let calls = vec![call; self.batch];
        let began = Instant::now();
        let report = self.sandbox.call_batch(&mut self.slot, &calls).await;
        let memory_bytes = report.memory_bytes();
        let took = began.elapsed();
        let outcome = report
            .answer
            .map(|mut outcomes| outcomes.pop().unwrap_or(Outcome::Ack))
            .unwrap_or_else(Outcome::Fault);
        if let Outcome::Fault(fault) = &outcome {
            let hint = "give a body that it handles with `--body-file`";
            return Err(Error::handler(
                format_args!("the handler faults: {fault}"),
                hint,
            ));
        }
        Ok(Once {
            took,
            memory_bytes,
            outcome: Verdict::new(&outcome).outcome,
        })
    }

    /// Rounds of calls, after some calls that warm up the caches.
    async fn figures(mut self) -> Result<CallFigures, Error> {
        for _ in 0..(self.plan.calls / 10).min(100) {
            self.once().await?;
        }
        let (mut p50, mut p99, mut rates, mut calls) = (vec![], vec![], vec![], 0);
        for _ in 0..self.plan.rounds {
            let mut times = Vec::new();
            let began = Instant::now();
            while (times.len() as u64) < self.plan.calls && began.elapsed() < ROUND {
                let share = u32::try_from(self.batch).unwrap_or(u32::MAX);
                times.push(self.once().await?.took / share);
            }
            let messages = times.len() * self.batch;
            rates.push(messages as f64 / began.elapsed().as_secs_f64());
            calls += times.len() as u64;
            p50.extend(percentile(&mut times, 0.5).map(micros));
            p99.extend(percentile(&mut times, 0.99).map(micros));
        }
        Ok(CallFigures {
            calls,
            p50_us: rounded(median(p50)),
            p99_us: rounded(median(p99)),
            messages_per_second: rounded(median(rates)),
        })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
