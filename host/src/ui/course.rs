//! The figures of queues over time: some minutes, in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::Ui;
use crate::redis::Error;
use crate::registry::overview::{self, QueueSeen};
use crate::telemetry::wall_clock_ms;

/// How often the queues are looked at although no page asks.
const EVERY: Duration = Duration::from_secs(15);
/// An answer this old is good enough.
const FRESH: Duration = Duration::from_secs(3);
/// How many points of each queue are kept.
const POINTS_MAX: usize = 240;
/// Two points of a queue are at least this far apart: so the course is an hour long.
const APART_MS: u64 = 14_000;
/// The most queues whose course is kept.
const QUEUES_MAX: usize = 2_000;

/// The figures of a queue at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// When, in epoch milliseconds.
    at_ms: u64,
    lag: Option<u64>,
    pending: u64,
    dead: Option<u64>,
    rate: Option<f64>,
    run_ms: Option<f64>,
    run_p99_ms: Option<f64>,
}

/// Names a queue: its key and its group.
type Name = (String, Option<String>);

#[derive(Debug, Default)]
pub(super) struct Course(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    latest: Option<(Instant, Arc<Vec<QueueSeen>>)>,
    points: HashMap<Name, VecDeque<Point>>,
}

/// Every listed queue, as it was a moment ago. Requests at the same time share one look.
pub(super) async fn latest(ui: &Ui) -> Result<Arc<Vec<QueueSeen>>, Error> {
    let mut state = ui.0.course.0.lock().await;
    if let Some((at, queues)) = &state.latest
        && at.elapsed() < FRESH
    {
        return Ok(Arc::clone(queues));
    }
    let queues = Arc::new(overview::queues(&ui.0.connector, None).await?);
    state.add(&queues);
    state.latest = Some((Instant::now(), Arc::clone(&queues)));
    Ok(queues)
}

/// The course of a queue, oldest first.
pub(super) async fn of(ui: &Ui, queue: &str, group: Option<&str>) -> Vec<Point> {
    let state = ui.0.course.0.lock().await;
    let name = (queue.to_owned(), group.map(str::to_owned));
    let points = state.points.get(&name);
    points.map_or_else(Vec::new, |points| points.iter().copied().collect())
}

impl Ui {
    /// Look at the queues again and again, so that the page can show their course. Ends with the task.
    pub async fn observe(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = latest(&self).await {
                debug!(%error, "could not look at the queues");
            }
        }
    }
}

impl State {
    fn add(&mut self, queues: &[QueueSeen]) {
        let at_ms = wall_clock_ms();
        let is_listed = |name: &Name| {
            let mut queues = queues.iter();
            queues.any(|queue| queue.queue == name.0 && queue.group == name.1)
        };
        // Queues come and go: only then it is worth a look at each.
        if self.points.len() > queues.len() {
            self.points.retain(|name, _| is_listed(name));
        }
        for queue in queues {
            let name = (queue.queue.clone(), queue.group.clone());
            if self.points.len() >= QUEUES_MAX && !self.points.contains_key(&name) {
                continue;
            }
            let points = self.points.entry(name).or_default();
            if points
                .back()
                .is_some_and(|last| at_ms < last.at_ms + APART_MS)
            {
                continue;
            }
            points.push_back(Point {
                at_ms,
                lag: queue.lag,
                pending: queue.pending,
                dead: queue.dead_letters,
                rate: queue.attempts_per_second,
                run_ms: queue.run_ms,
                run_p99_ms: queue.run_p99_ms,
            });
            if points.len() > POINTS_MAX {
                points.pop_front();
            }
        }
    }
}
