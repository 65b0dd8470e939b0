//! The speed of the real loop, with the sandbox and with a native no-op.
//!
//! - [`measure`]: one measurement of the loop, through a queue that [`through`] opens, with the
//!   stopwatch of [`timed`].
//! - [`in_process`]: a component alone, without Redis.
//! - [`replay`]: the replay of dead letters.

mod in_process;
mod measure;
mod replay;
mod through;
mod timed;

use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;

use crate::redis::connection::Connector;
use crate::runtime::native::NoOp;
use crate::runtime::sandboxed::Sandboxed;
use crate::sandbox::Sandbox;
use crate::workbench::Error;

pub use in_process::{CallFigures, ComponentReport, Plan, measure_component};
pub use measure::Load;
use measure::{Bench, Measured};
pub use replay::{ReplayLoad, ReplayReport, measure_replay};
pub use through::Through;
use timed::percentile;

/// How many messages an instance serves where instances are reused.
pub const REUSE: u32 = 10_000;

/// How this program was built.
pub const BUILD: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// Medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The rate.
    pub messages_per_second: f64,
    /// Of each round, in their order.
    pub rounds: Vec<f64>,
    /// The median of the times of calls under full load.
    pub call_p50_us: Option<f64>,
    /// The 99th percentile.
    pub call_p99_us: Option<f64>,
    /// The median of the times from sending to the answer, at the steady rate.
    pub latency_p50_us: Option<f64>,
    /// The 99th percentile.
    pub latency_p99_us: Option<f64>,
    /// The 99.9th percentile.
    pub latency_p999_us: Option<f64>,
    /// CPU time of this process.
    pub host_cpu_seconds: f64,
    /// CPU time of the server.
    pub redis_cpu_seconds: f64,
    /// The peak memory of this process.
    pub peak_memory_bytes: u64,
}

/// Measure the loop with a native no-op (the floor) and with the sandbox, in turn. Calls `advance` after each
/// measurement.
///
/// # Errors
/// Redis fails, or the handler does not acknowledge every message.
pub async fn measure_loop(
    connector: &Connector,
    load: &Load,
    sandbox: &Sandbox,
    rounds: u32,
    attempts: &Handle,
    advance: impl Fn(),
) -> Result<[Figures; 2], Error> {
    let bench = Bench {
        connector,
        load,
        attempts,
    };
    let handler = || {
        let handler = Sandboxed::new(sandbox.clone());
        match load.batching {
            Some(batching) => handler.gathering(batching),
            None => handler,
        }
    };
    let mut measured = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            // A later one finds a warmer machine: so they take turns.
            let what = ((round + turn) % 2) as usize;
            measured[what].push(match what {
                0 => bench.measure(NoOp::default).await?,
                _ => bench.measure(handler).await?,
            });
            advance();
        }
    }
    Ok(measured.map(|rounds| figures(load, rounds)))
}

fn figures(load: &Load, rounds: Vec<Measured>) -> Figures {
    let per_second: Vec<f64> = rounds
        .iter()
        .map(|r| rounded(load.messages as f64 / r.elapsed.as_secs_f64()))
        .collect();
    let middle = |value: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(value).collect());
    let peak = middle(&|r| r.peak_memory as f64) as u64;
    let (host_cpu_seconds, redis_cpu_seconds) = (
        middle(&|r| r.host_cpu.as_secs_f64()),
        middle(&|r| r.redis_cpu.as_secs_f64()),
    );
    let (mut calls, mut journeys) = (Vec::new(), Vec::new());
    for mut round in rounds {
        calls.append(&mut round.calls);
        journeys.append(&mut round.journeys);
    }
    let us = |values: &mut [Duration], share| {
        let value = percentile(values, share)?;
        Some(rounded(value.as_secs_f64() * 1e6))
    };
    Figures {
        messages_per_second: median(per_second.clone()),
        rounds: per_second,
        call_p50_us: us(&mut calls, 0.5),
        call_p99_us: us(&mut calls, 0.99),
        latency_p50_us: us(&mut journeys, 0.5),
        latency_p99_us: us(&mut journeys, 0.99),
        latency_p999_us: us(&mut journeys, 0.999),
        host_cpu_seconds,
        redis_cpu_seconds,
        peak_memory_bytes: peak,
    }
}

/// One decimal: more would be noise.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (values[n / 2 - 1] + values[n / 2]) / 2.0,
        n => values[n / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_both_middles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
