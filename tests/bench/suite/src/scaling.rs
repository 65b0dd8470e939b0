//! Attempts on one core and on more, and what each thread costs.

use serde_json::{Value, json};

use crate::drain::{Drained, Kind, Work, drain};
use crate::report::{Report, middle, table, thousands};
use crate::server::Server;
use crate::{Outcome, Setup, fail};

const MESSAGES: u64 = 200_000;
const ROUNDS: usize = 3;
/// The main thread of a host runs the loop. The kernel keeps 15 letters of a name.
const LOOP: &str = "hostler";
const SLOTS: &str = "hostler-attempt";
/// The machine of the model.
const MODEL_CORES: f64 = 16.0;

struct Case {
    mode: &'static str,
    cores: usize,
    measured: Vec<Drained>,
}

impl Case {
    fn us(&self, thread: &str) -> f64 {
        middle(&self.measured, |drained| {
            drained.threads_us.get(thread).copied().unwrap_or_default()
        })
    }

    fn rate(&self) -> f64 {
        middle(&self.measured, |drained| drained.per_second)
    }

    fn redis_us(&self) -> f64 {
        middle(&self.measured, |drained| drained.redis_us)
    }
}

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let all = std::thread::available_parallelism()?.get();
    if all < 2 {
        return fail("it needs two cores");
    }
    let cores: Vec<usize> = [1, 2, 4, 8, 16]
        .into_iter()
        .filter(|cores| *cores <= all)
        .collect();
    // Redis has the last core: alone, unless the host has all of them.
    let redis = (all - 1).to_string();
    let mut cases: Vec<Case> = Vec::new();
    for mode in ["fresh", "reuse"] {
        cases.extend(cores.iter().map(|cores| Case {
            mode,
            cores: *cores,
            measured: Vec::new(),
        }));
    }
    let messages = setup.count(MESSAGES);
    for _ in 0..setup.rounds(ROUNDS) {
        for case in &mut cases {
            let mut server = Server::start(setup.folder(), Some(&redis))?;
            server.create_stream()?;
            server.fill_stream(crate::server::QUEUE, messages, &"x".repeat(100))?;
            let host = setup.host(&server.url(), Kind::Stream, "ack", case.mode == "reuse");
            let host = host.on(&format!("0-{}", case.cores - 1));
            let drained = drain(setup.folder(), &mut server, &[host], &Work::new(messages))?;
            eprintln!(
                "   {}, {} cores: {}/s",
                case.mode,
                case.cores,
                thousands(drained.per_second)
            );
            case.measured.push(drained);
        }
    }
    Ok(report(&cases, all, messages))
}

fn report(cases: &[Case], all: usize, messages: u64) -> Report {
    let rows: Vec<_> = cases
        .iter()
        .map(|case| {
            let one = cases
                .iter()
                .find(|one| one.mode == case.mode && one.cores == 1)
                .map_or(f64::NAN, Case::rate);
            [
                case.mode.to_owned(),
                case.cores.to_string(),
                if case.cores < all {
                    "a core of its own"
                } else {
                    "the last of these cores"
                }
                .to_owned(),
                thousands(case.rate()),
                format!("{:.2}", case.rate() / one),
                format!("{:.2}", case.us(LOOP)),
                format!("{:.2}", case.us(SLOTS)),
                format!("{:.2}", case.redis_us()),
            ]
        })
        .collect();
    let names = [
        "instance",
        "cores of the host",
        "Redis",
        "attempts/s",
        "to one core",
        "loop, CPU us",
        "slots, CPU us",
        "Redis, CPU us",
    ];
    let mut text = format!(
        "A host empties a stream of {messages} messages of 100 bytes; CPU time for each message, rounds: {}.\n\n{}",
        cases.first().map_or(0, |case| case.measured.len()),
        table(3, names, &rows)
    );
    text.push_str("\nThe model of 16 cores: the loop has one core, Redis has one, and slots have the others. Messages a second:\n\n");
    let model: Vec<_> = ["fresh", "reuse"]
        .iter()
        .filter_map(|mode| {
            // With a core of its own, a thread is delayed least.
            let case = cases.iter().find(|case| case.mode == *mode)?;
            let (one_loop, redis) = (1e6 / case.us(LOOP), 1e6 / case.redis_us());
            let slots = 1e6 / case.us(SLOTS);
            let limits = [
                ("the loop", one_loop),
                ("Redis", redis),
                ("slots", slots * (MODEL_CORES - 2.0)),
            ];
            let (limit, most) = limits
                .into_iter()
                .min_by(|one, other| one.1.total_cmp(&other.1))?;
            Some([
                (*mode).to_owned(),
                thousands(one_loop),
                thousands(redis),
                thousands(slots),
                format!("{:.1}", one_loop / slots),
                format!("{}, by {limit}", thousands(most)),
            ])
        })
        .collect();
    let names = [
        "instance",
        "most of the loop",
        "most of Redis",
        "most of a core of slots",
        "cores of slots that fill the loop",
        "most on 16 cores",
    ];
    text.push_str(&table(1, names, &model));
    let raw = cases.iter().map(|case| {
        json!({
            "mode": case.mode, "cores": case.cores, "messages_per_second": case.rate().round(),
            "rounds": case.measured.iter().map(Drained::json).collect::<Vec<_>>(),
        })
    });
    Report {
        raw: Value::Array(raw.collect()),
        text,
        plots: Vec::new(),
    }
}
