//! The effect of a compilation on the pace of the running version.

use std::time::{Duration, Instant};

use hostler_tests::host::Host;
use hostler_tests::redis::eventually_or;
use wasm_encoder::{ComponentSection, ModuleSection};

use crate::rollout::swap_scene::{COMPILES, Scene, current, digest, said, scripted};
use crate::sandbox::sandbox_compile::{children, slow_module};

/// The time between two samples.
const EVERY: Duration = Duration::from_millis(25);
/// The length of a sample without a compilation.
const QUIET: Duration = Duration::from_secs(1);
/// A compilation that takes at least this long gives a result.
const LONG: Duration = Duration::from_secs(1);
/// The longest time that a compilation may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The guest `scripted`, with an unused module whose compilation takes long.
fn version(tag: &str, functions: usize) -> Vec<u8> {
    let mut bytes = scripted(tag);
    ModuleSection(&slow_module(functions)).append_to_component(&mut bytes);
    bytes
}

/// A number of attempts, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    attempts: u64,
    time: Duration,
}

impl Pace {
    fn per_second(self) -> f64 {
        self.attempts as f64 / self.time.as_secs_f64()
    }

    fn take_in(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.time += other.time;
    }
}

/// The number of attempts so far, and whether a compiler runs.
fn look(host: &Host) -> (u64, bool) {
    let series = "hostler_version_attempts_total{version=\"current\",outcome=\"nack-requeue\"}";
    (host.metric(series), !children(host.pid()).is_empty())
}

/// The pace without and with a compilation, until this happens.
async fn paces(host: &Host, until: impl Fn(Duration) -> bool) -> (Pace, Pace) {
    let (mut quiet, mut compiling) = (Pace::default(), Pace::default());
    let begun = Instant::now();
    let (mut at, mut before) = (Instant::now(), look(host));
    while !until(begun.elapsed()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", host.log().last());
        tokio::time::sleep(EVERY).await;
        let (now, found) = (Instant::now(), look(host));
        let pace = Pace {
            attempts: found.0 - before.0,
            time: now - at,
        };
        // A sample in which a compilation began or ended does not count.
        match (before.1, found.1) {
            (true, true) => compiling.take_in(pace),
            (false, false) => quiet.take_in(pace),
            _ => {}
        }
        (at, before) = (now, found);
    }
    (quiet, compiling)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_files_is_taken_in_order_and_ends_with_the_last_one() {
    let scene = Scene::new(&version("first", 0)).await;
    let host = scene.host().flags(COMPILES).ready().await;
    let digests = |message: &str, field: &str| -> Vec<String> {
        let lines = said(&host, message).into_iter();
        lines
            .map(|line| line.text(field).unwrap().to_owned())
            .collect()
    };
    let swapped = || digests("swapped", "to");
    let superseded = || digests("a version was superseded before it was taken", "handler");
    let begun = Instant::now();
    let (mut functions, mut put) = (16, Vec::new());
    // The host reads the file twice, a quarter of a second apart: it misses no version.
    let mut ticks = tokio::time::interval(Duration::from_millis(700));
    // Until the host has taken three versions, and another version was superseded.
    while swapped().len() < 3 || superseded().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", host.log().last());
        ticks.tick().await;
        let next = version(&put.len().to_string(), functions);
        scene.put(&next);
        put.push(digest(&next));
        // When compilations are faster than new versions, they are made slower.
        if put.len() % 4 == 0 && superseded().is_empty() {
            functions *= 2;
        }
    }
    let last = put.last().unwrap();
    eventually_or(
        || format!("the last one runs: {:?}", host.log().last()),
        async || current(&host) == **last && swapped().last() == Some(last),
    )
    .await;
    // The taken versions are a part of the written versions, in the same order.
    let swapped = swapped();
    let place = |digest: &String| put.iter().position(|known| known == digest).unwrap();
    let places: Vec<usize> = swapped.iter().map(place).collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    assert_eq!(places.last(), Some(&(put.len() - 1)));
    assert!(superseded().iter().all(|digest| !swapped.contains(digest)));
    let published = scene.publish(vec!["ack".to_owned(); 100]);
    scene.emptied().await;
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], published);
}

/// It compares times: alone.
mod measured {
    mod long {
        use super::super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn compiling_leaves_the_running_version_most_of_its_pace() {
            let scene = Scene::new(&version("first", 0)).await;
            let host = scene.host().flags(COMPILES).ready().await;
            // A load that never ends: each message asks for another attempt at once.
            scene.publish(vec!["nack:0".to_owned(); 200]);
            let (mut functions, mut number) = (8, 0);
            let mut seen = Vec::new();
            // Other processes may disturb a measurement: it is repeated up to five times.
            for _ in 0..5 {
                let (mut quiet, mut compiling) = (Pace::default(), Pace::default());
                for _ in 0..3 {
                    quiet.take_in(paces(&host, |time| time >= QUIET).await.0);
                    loop {
                        number += 1;
                        let next = version(&number.to_string(), functions);
                        let wanted = digest(&next);
                        scene.put(&next);
                        let runs = |_| current(&host) == *wanted;
                        let (_, pace) = paces(&host, runs).await;
                        if pace.time >= LONG {
                            compiling.take_in(pace);
                            break;
                        }
                        functions *= 2;
                    }
                }
                let (after, _) = paces(&host, |time| time >= QUIET).await;
                let paces = [quiet, compiling, after].map(Pace::per_second);
                let [quiet, compiling, after] = paces;
                println!(
                    "attempts a second: {quiet:.0}, {compiling:.0} while a version is compiled ({:.0} %), \
                     {after:.0} after that",
                    compiling * 100.0 / quiet
                );
                seen.push(paces);
                if compiling * 2.0 > quiet && after * 4.0 > quiet * 3.0 {
                    host.drained().await;
                    return;
                }
            }
            panic!("attempts a second, quiet, compiling, after: {seen:?}");
        }
    }
}
