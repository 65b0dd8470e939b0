//! Clocks and random numbers of an attempt whose answers are recorded, or given again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand_core::TryRng;
use sha2::{Digest, Sha256};
use wasmtime_wasi::clocks::{MonotonicClock, WallClock};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use crate::delivery::recording::{Reading, Track};
use crate::delivery::text::hex;

/// The track of the attempt that an instance works on. It has one in each of its attempts, or in none.
pub(super) type Current = Arc<Mutex<Arc<Track>>>;

/// Let the guest read clocks and random numbers over the track of its attempt.
pub(super) fn provide(context: &mut WasiCtxBuilder, current: &Current) {
    let random = || Random(Arc::clone(current));
    let mut seed = [0; 16];
    random().fill(&mut seed);
    context
        .wall_clock(Wall(Arc::clone(current)))
        .monotonic_clock(Monotonic(Arc::clone(current), MonotonicClock::new()))
        .secure_random(random())
        .insecure_random(random())
        .insecure_random_seed(u128::from_le_bytes(seed));
}

/// A seed that nobody can guess, in hexadecimal digits.
pub(super) fn seed() -> String {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the kernel has random numbers");
    hex(&seed)
}

struct Wall(Current);

impl HostWallClock for Wall {
    fn resolution(&self) -> Duration {
        WallClock::new().resolution()
    }

    fn now(&self) -> Duration {
        let live = || u64::try_from(WallClock::new().now().as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.lock().reading(Reading::WallClock, live))
    }
}

struct Monotonic(Current, MonotonicClock);

impl HostMonotonicClock for Monotonic {
    fn resolution(&self) -> u64 {
        self.1.resolution()
    }

    fn now(&self) -> u64 {
        let live = || self.1.now();
        self.0.lock().reading(Reading::Monotonic, live)
    }
}

/// Digests of the seed and the number of each block. It is the same in every version of hostler, which no generator of
/// a library promises.
struct Random(Current);

impl Random {
    fn fill(&self, bytes: &mut [u8]) {
        let track = self.0.lock();
        for part in bytes.chunks_mut(32) {
            let (seed, block) = track.random();
            let block = Sha256::new()
                .chain_update(seed)
                .chain_update(block.to_le_bytes())
                .finalize();
            part.copy_from_slice(&block[..part.len()]);
        }
    }

    fn array<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(self.array()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(self.array()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}
