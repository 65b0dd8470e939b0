//! The bodies of the fuzz targets for the sandbox, on random bytes and for a few seconds. `make
//! fuzz` runs them longer, guided by coverage. `HOSTLER_FUZZ_SECONDS` changes the time, and
//! `HOSTLER_FUZZ_SEED` repeats a run with the seed that it printed.

use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;

#[path = "../../fuzz/src/components.rs"]
#[expect(
    unreachable_pub,
    reason = "the targets, which are crates of their own, call them too"
)]
mod components;

/// The bound on the resident memory of a process that loads and runs very many components.
const RESIDENT_MAX: u64 = 1 << 30;

/// The result of a run.
#[derive(Debug)]
struct Moment {
    inputs: u32,
    /// The number of inputs that ran, or that were valid answers.
    ran: u32,
}

/// Try inputs for some seconds, and until at least one runs.
fn moment(name: &str, mut input: impl FnMut(&mut Rng) -> Vec<u8>, body: fn(&[u8]) -> bool) {
    const RUN: &str = "HOSTLER_TEST_GENERATED";
    let number = |variable| std::env::var(variable).ok()?.parse::<u64>().ok();
    // A process of its own: its memory is the memory that these inputs took.
    if std::env::var_os(RUN).is_none() {
        let seed = number("HOSTLER_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
        let child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args([
                "--exact",
                "--nocapture",
                &format!("sandbox::sandbox_fuzz::{name}"),
            ])
            .env(RUN, "")
            .env("HOSTLER_FUZZ_SEED", seed.to_string())
            .output()
            .expect("it can be run again");
        let output = String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned();
        println!("seed {seed}\n{output}");
        let status = child.status;
        assert!(status.success(), "with the seed {seed}: {status}");
        assert!(output.contains("1 passed"), "it ran");
        return;
    }
    let mut rng = Rng::with_seed(number("HOSTLER_FUZZ_SEED").expect("a seed"));
    let seconds = number("HOSTLER_FUZZ_SECONDS").unwrap_or(3);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut moment = Moment { inputs: 0, ran: 0 };
    while Instant::now() < end || moment.ran == 0 {
        let input = input(&mut rng);
        moment.inputs += 1;
        moment.ran += u32::from(body(&input));
    }
    println!("{moment:?}, {} bytes at most", resident_max());
    assert!(resident_max() < RESIDENT_MAX, "{} bytes", resident_max());
}

/// The peak of the resident memory of this process, in bytes.
fn resident_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.expect("a number of kB") << 10
}

fn noise(rng: &mut Rng, max: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.usize(..max)];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn random_files_are_refused_or_run_within_limits() {
    let input = |rng: &mut Rng| {
        // Most inputs are valid components with changes.
        let choice = *rng.choice(&[0, 1, 2, 2, 2, 3]).expect("there are some");
        let mut input = noise(rng, 4096);
        input.insert(0, choice);
        input
    };
    moment(
        "random_files_are_refused_or_run_within_limits",
        input,
        components::component,
    );
}

#[test]
fn random_code_behind_a_valid_export_runs_within_limits() {
    let input = |rng: &mut Rng| noise(rng, 16 << 10);
    let name = "random_code_behind_a_valid_export_runs_within_limits";
    moment(name, input, components::handler);
}

/// A valid answer, or nearly a valid one.
fn nearly(rng: &mut Rng) -> Vec<u8> {
    let mut memory = vec![0; rng.usize(4..600)];
    for byte in &mut memory {
        // The cases of outcomes and options, and values close to them.
        *byte = *rng
            .choice(&[0, 0, 0, 0, 1, 1, 2, 2, 3, 8, b'a', 0xc3, 0xff])
            .expect("some");
    }
    let mut put = |at: usize, word: u32| {
        if let Some(place) = memory.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    };
    let messages = rng.u8(..8);
    let at = 8 * rng.u32(1..8);
    put(0, at);
    if messages > 0 {
        // The address and the number of the outcomes.
        put(at as usize, 8 * rng.u32(8..20));
        put(at as usize + 4, u32::from(rng.u8(..).min(messages)));
    } else if rng.bool() {
        // The address and the length of a text.
        put(at as usize, 2);
        put(at as usize + 8, 1);
        put(at as usize + 12, rng.u32(..700));
        put(at as usize + 16, rng.u32(..40));
    }
    if rng.u8(..4) == 0 {
        let place = rng.usize(..memory.len());
        memory[place] = rng.u8(..);
    }
    memory.insert(0, messages);
    memory
}

#[test]
fn random_answers_become_outcomes_or_faults() {
    let input = |rng: &mut Rng| match rng.u8(..8) {
        0 => noise(rng, 4096),
        _ => nearly(rng),
    };
    moment(
        "random_answers_become_outcomes_or_faults",
        input,
        components::answer,
    );
}
