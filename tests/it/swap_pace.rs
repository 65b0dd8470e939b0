//! What compiling a new version costs the one that runs.

use std::time::{Duration, Instant};

use hostler_tests::guests::{guest, variant};
use hostler_tests::host::{Host, eventually_or};
use wasm_encoder::{ComponentSection, ModuleSection};

use crate::sandbox_compile::{children, slow_module};
use crate::swap_scene::{Scene, digest, said, versions};

/// How often it is looked what goes on.
const EVERY: Duration = Duration::from_millis(25);
/// How long it is looked at, where nothing is compiled.
const QUIET: Duration = Duration::from_secs(1);
/// A version whose compilation takes at least this long shows what it costs.
const LONG: Duration = Duration::from_secs(1);
/// How long one may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// The guest `scripted`, with a module beside it that nobody uses, and that takes long to compile.
fn version(tag: &str, functions: usize) -> Vec<u8> {
    let mut bytes = variant(&std::fs::read(guest("scripted")).unwrap(), tag);
    ModuleSection(&slow_module(functions)).append_to_component(&mut bytes);
    bytes
}

/// Attempts that ended in some time.
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

/// Attempts so far, and whether anything is compiled.
fn look(host: &Host) -> (u64, bool) {
    let series = "hostler_version_attempts_total{version=\"current\",outcome=\"nack-requeue\"}";
    (host.metric(series), !children(host.pid()).is_empty())
}

/// The pace while nothing is compiled and while something is, until this happens.
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
        // What began or ended in between says nothing.
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
async fn the_version_that_runs_keeps_most_of_its_pace_while_another_one_is_compiled() {
    let scene = Scene::new(&version("first", 0)).await;
    let host = scene.host().ready().await;
    // A load that never ends: each of them asks for another attempt, at once.
    scene.publish(vec!["nack:0".to_owned(); 200]);
    let (mut functions, mut number) = (8, 0);
    let mut seen = Vec::new();
    // Others on this machine may take from either: then it is tried again.
    for _ in 0..5 {
        let (mut quiet, mut compiling) = (Pace::default(), Pace::default());
        for _ in 0..3 {
            quiet.take_in(paces(&host, |time| time >= QUIET).await.0);
            loop {
                number += 1;
                let next = version(&number.to_string(), functions);
                let wanted = digest(&next);
                scene.put(&next);
                let runs = |_| versions(&host)["current"]["digest"] == *wanted;
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
            host.drain().await.expect_code(0);
            return;
        }
    }
    panic!("attempts a second, quiet, compiling, after: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_under_a_flood_of_versions_moves_forward_and_ends_with_the_last_one() {
    let scene = Scene::new(&version("first", 0)).await;
    let host = scene.host().ready().await;
    let digests = |message: &str, field: &str| -> Vec<String> {
        let lines = said(&host, message).into_iter();
        lines
            .map(|line| line.text(field).unwrap().to_owned())
            .collect()
    };
    let swapped = || digests("swapped", "to");
    let superseded = || digests("a version was superseded before it was taken", "digest");
    let begun = Instant::now();
    let (mut functions, mut put) = (16, Vec::new());
    // Each is looked at twice, a quarter of a second apart: none is missed.
    let mut ticks = tokio::time::interval(Duration::from_millis(700));
    // On and on, until the host has moved forward while others had to wait.
    while swapped().len() < 3 || superseded().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", host.log().last());
        ticks.tick().await;
        let next = version(&put.len().to_string(), functions);
        scene.put(&next);
        put.push(digest(&next));
        // If they compile faster than they come, it is no flood.
        if put.len() % 10 == 0 && superseded().is_empty() {
            functions *= 2;
        }
    }
    let last = put.last().unwrap();
    eventually_or(
        || format!("the last one runs: {:?}", host.log().last()),
        async || versions(&host)["current"]["digest"] == **last,
    )
    .await;
    // What was taken is what was put there, in that order, and each of them once.
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
