//! Proves on a component that a reset restores.

use wasmtime::{Result, ensure};

use crate::run::{Calls, Handler, Message, Outcome};

/// What a check has found.
#[derive(Debug, Default)]
pub struct Found {
    /// Calls whose instance was then as after its start.
    pub restored: usize,
    /// Calls after which the instance could not be reset: it would be dropped.
    pub ended: usize,
    /// Calls that left differences.
    pub different: usize,
}

/// Call an instrumented component with each of these bodies. Each time, compare its memory and globals with what they
/// were before the first call, and its answer with that of a fresh instance.
///
/// # Errors
/// It traps, or it answers in another way than a fresh instance.
pub async fn check(component: &[u8], bodies: &[Vec<u8>]) -> Result<Found> {
    let handler = Handler::new(component, Calls::Fiber)?;
    let mut found = Found::default();
    let mut fresh = handler.live().await?;
    ensure!(
        fresh.differences().await? == 0,
        "a fresh instance differs from its image"
    );
    drop(fresh);
    let mut live = handler.live().await?;
    // A start may draw random numbers: then two instances differ.
    let mut digest = live.digest().await?;
    for body in bodies {
        let message = Message::of(body);
        let expected: Outcome = handler.live().await?.call(&message).await?;
        let answer = live.call(&message).await?;
        ensure!(answer == expected, "{answer:?} is not {expected:?}");
        if live.must_be_dropped() {
            found.ended += 1;
            live = handler.live().await?;
            digest = live.digest().await?;
        } else if live.differences().await? == 0 && live.digest().await? == digest {
            found.restored += 1;
        } else {
            found.different += 1;
        }
    }
    Ok(found)
}

/// Bodies of different sizes, some of them no JSON. They end with the first one again.
pub fn bodies(body: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = vec![body.to_vec(), Vec::new()];
    for size in [1, 100, 4095, 4096, 5000, 20_000, 65_536, 300_000] {
        bodies.push(body.iter().copied().cycle().take(size).collect());
    }
    bodies.push(padded(body, 3_000));
    bodies.push(body.to_vec());
    bodies
}

/// The body, if it is a JSON object, with so many bytes more in a member of its own.
pub fn padded(body: &[u8], size: usize) -> Vec<u8> {
    let mut padded = body.trim_ascii_end().to_vec();
    padded.pop();
    padded.extend(br#","note":""#);
    padded.extend(std::iter::repeat_n(b'x', size));
    padded.extend(br#""}"#);
    padded
}
