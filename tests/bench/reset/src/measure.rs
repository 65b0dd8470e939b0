//! Measures calls in several ways, alternating, so that a change of the machine meets all of them.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::runtime::Runtime;
use wasmtime::{Result, bail};

use crate::run::{Calls, Handler, Live, Message};

/// Calls between two looks at the clock.
const CALLS: u32 = 50;

/// Whether calls share an instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Instances {
    /// Each call has an instance of its own.
    Fresh,
    /// An instance is made and dropped, and not called.
    Unused,
    /// A store is made and dropped, without an instance.
    None,
    /// All have the same.
    Kept {
        /// Whether an instance that could not be reset is dropped.
        drops: bool,
    },
}

/// One way to call a handler.
pub struct Way {
    /// What is printed.
    pub name: String,
    /// The handler.
    pub handler: Handler,
    /// Its instances.
    pub instances: Instances,
}

/// What was measured of a way.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Nanoseconds per call: the median, and the quartiles.
    pub median: f64,
    /// The first quartile.
    pub low: f64,
    /// The third quartile.
    pub high: f64,
    /// Instances that were made, per call.
    pub made: f64,
}

/// Call each way in turn, so many times. All calls have the same message.
///
/// # Errors
/// A call fails.
pub fn measure(
    runtime: &Runtime,
    ways: &[Way],
    message: &Message<'_>,
    rounds: u32,
) -> Result<Vec<Measured>> {
    let mut kept: Vec<Option<Live>> = ways.iter().map(|_| None).collect();
    let mut times = vec![Vec::new(); ways.len()];
    let mut made = vec![0_u64; ways.len()];
    let warm = rounds / 10 + 1;
    for round in 0..warm + rounds {
        for (place, way) in ways.iter().enumerate() {
            let began = Instant::now();
            made[place] += way.run(runtime, calls(way, &mut kept[place], message))?;
            let took = began.elapsed();
            if round >= warm {
                times[place].push(took.as_secs_f64() * 1e9 / f64::from(CALLS));
            }
        }
    }
    let count = f64::from((warm + rounds) * CALLS);
    let measured = times.into_iter().zip(made).map(|(mut times, made)| {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[(times.len() * part / 4).min(times.len() - 1)];
        Measured {
            median: at(2),
            low: at(1),
            high: at(3),
            made: made as f64 / count,
        }
    });
    Ok(measured.collect())
}

impl Way {
    /// Run a future of this way. WASI without fibers blocks its thread, and must not be inside of a runtime.
    pub fn run<T>(&self, runtime: &Runtime, future: impl Future<Output = Result<T>>) -> Result<T> {
        match self.handler.calls() {
            Calls::Fiber => runtime.block_on(future),
            Calls::Direct => match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => bail!("a call without a fiber waits"),
            },
        }
    }
}

/// Some calls. Returns how many instances were made.
async fn calls(way: &Way, kept: &mut Option<Live>, message: &Message<'_>) -> Result<u64> {
    let mut made = 0;
    for _ in 0..CALLS {
        made += u64::from(call(way, kept, message).await?);
    }
    Ok(made)
}

/// One call. Returns whether an instance was made.
async fn call(way: &Way, kept: &mut Option<Live>, message: &Message<'_>) -> Result<bool> {
    if way.instances == Instances::None {
        drop(way.handler.store());
        return Ok(false);
    }
    let (mut live, is_new) = match kept.take() {
        Some(live) => (live, false),
        None => (way.handler.live().await?, true),
    };
    if way.instances != Instances::Unused {
        live.call(message).await?;
    }
    match way.instances {
        Instances::Kept { drops } if !(drops && live.must_be_dropped()) => {
            *kept = Some(live);
        }
        _ => drop(live),
    }
    Ok(is_new)
}
