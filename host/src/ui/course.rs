//! The figures of queues over time: a day, in memory.

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
/// How many points of each queue are kept, as they came.
const POINTS_MAX: usize = 240;
/// Two points of a queue are at least this far apart: so these are an hour long.
const APART_MS: u64 = 14_000;
/// How many older points of each queue are kept.
const OLDER_MAX: usize = 288;
/// Two older points are at least this far apart: so these are a day long.
const OLDER_APART_MS: u64 = 300_000;
/// The most queues whose course is kept.
const QUEUES_MAX: usize = 2_000;

/// The figures of a queue at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    /// When, in epoch milliseconds.
    at_ms: u64,
    lag: Option<f32>,
    pending: f32,
    oldest_ms: Option<f32>,
    dead: Option<f32>,
    rate: Option<f32>,
    run_ms: Option<f32>,
    run_p99_ms: Option<f32>,
}

impl Point {
    /// Six digits are enough for a line, and are half the bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a line on a page"
    )]
    fn of(queue: &QueueSeen, at_ms: u64) -> Self {
        let count = |count: Option<u64>| count.map(|count| count as f32);
        let mean = |mean: Option<f64>| mean.map(|mean| mean as f32);
        Self {
            at_ms,
            lag: count(queue.lag),
            pending: queue.pending as f32,
            oldest_ms: count(queue.oldest_pending_ms),
            dead: count(queue.dead_letters),
            rate: mean(queue.attempts_per_second),
            run_ms: mean(queue.run_ms),
            run_p99_ms: mean(queue.run_p99_ms),
        }
    }
}

/// The points of a queue, oldest first.
#[derive(Debug, Default)]
struct Points {
    older: VecDeque<Point>,
    newer: VecDeque<Point>,
}

impl Points {
    /// Whether it comes too early for another point.
    fn has(&self, at_ms: u64) -> bool {
        let last = self.newer.back();
        last.is_some_and(|last| at_ms < last.at_ms + APART_MS)
    }

    fn push(&mut self, point: Point) {
        self.newer.push_back(point);
        if self.newer.len() <= POINTS_MAX {
            return;
        }
        let last = self.older.back().map_or(0, |last| last.at_ms);
        let oldest = self.newer.pop_front();
        self.older
            .extend(oldest.filter(|oldest| oldest.at_ms >= last + OLDER_APART_MS));
        if self.older.len() > OLDER_MAX {
            self.older.pop_front();
        }
    }

    fn since(&self, at_ms: u64) -> Vec<Point> {
        let all = self.older.iter().chain(&self.newer);
        all.filter(|point| point.at_ms > at_ms).copied().collect()
    }
}

/// Names a queue: its key and its group.
type Name = (String, Option<String>);

#[derive(Debug, Default)]
pub(super) struct Course(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    latest: Option<(Instant, Arc<Vec<QueueSeen>>)>,
    points: HashMap<Name, Points>,
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

/// The course of a queue after this moment (in epoch milliseconds), oldest first.
pub(super) async fn of(
    ui: &Ui,
    queue: &str,
    group: Option<&str>,
    since: Option<u64>,
) -> Vec<Point> {
    let state = ui.0.course.0.lock().await;
    let name = (queue.to_owned(), group.map(str::to_owned));
    let points = state.points.get(&name);
    points.map_or_else(Vec::new, |points| points.since(since.unwrap_or_default()))
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
            if !points.has(at_ms) {
                points.push(Point::of(queue, at_ms));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_whole_and_a_day_in_part() {
        let mut points = Points::default();
        let every: u64 = 15_000;
        let steps = 2 * 24 * 240;
        for at in 1..=steps {
            let at_ms = at * every;
            assert!(!points.has(at_ms) && (at == 1 || points.has(at_ms - every + 1)));
            points.push(Point {
                at_ms,
                lag: None,
                pending: 0.0,
                oldest_ms: None,
                dead: None,
                rate: None,
                run_ms: None,
                run_p99_ms: None,
            });
        }
        let now = steps * every;
        let hour = points.since(now - 3_600_000);
        assert_eq!(hour.len(), POINTS_MAX);
        let all = points.since(0);
        assert_eq!(all.len(), POINTS_MAX + OLDER_MAX);
        let day = now - all[0].at_ms;
        assert!((86_400_000..91_000_000).contains(&day), "{day}");
        assert!(all.is_sorted_by_key(|point| point.at_ms));
    }
}
