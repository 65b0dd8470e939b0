//! Costs that must not grow with what lies around, and the rates of the ways that are not an acknowledgement.

use std::time::Duration;

use serde_json::{Value, json};

use crate::drain::{Drained, Work, drain, drain_arriving};
use crate::process::Program;
use crate::report::{Report, Target, mebibytes, median, middle, range, table, thousands};
use crate::server::{QUEUE, Server};
use crate::{Outcome, Setup};

const MESSAGES: u64 = 200_000;
/// As many as a dead-letter queue holds by default.
const LETTERS: u64 = 100_000;
const DEAD: &str = "orders:dead";
const ROUNDS: usize = 3;
/// More than this share is growth.
const GROWTH: f64 = 0.1;

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let (growth, grown) = growth(setup)?;
    let (ways, way_results) = ways(setup)?;
    let text = format!(
        "Reused instances, bodies of 100 bytes. \"To the smallest\" compares the medians of a row with those of the first row \
         of its group: more than {:.0} % is growth.\n\n{growth}\nAll messages of a queue that end otherwise than by one \
         acknowledgement:\n\n{ways}",
        GROWTH * 100.0
    );
    Ok(Report {
        raw: json!({ "growth": grown, "ways": way_results }),
        text,
        plots: Vec::new(),
    })
}

/// What lies around, and the work beside it.
struct Step {
    size: u64,
    rounds: usize,
    work: Work<'static>,
    hosts: usize,
}

impl Step {
    fn new(size: u64, work: Work<'static>) -> Self {
        Self {
            size,
            rounds: ROUNDS,
            work,
            hosts: 1,
        }
    }
}

struct Group {
    what: &'static str,
    /// Only CPU time for each message may not grow: more hosts have more memory.
    cpu_only: bool,
    body: char,
    flags: &'static str,
    prepare: fn(&mut Server, &Step) -> Outcome<()>,
    steps: Vec<Step>,
}

fn groups(setup: &Setup) -> Vec<Group> {
    let messages = setup.count(MESSAGES);
    let work = || Work::new(messages);
    let beside = |size| {
        let size = if setup.quick { size / 200 } else { size };
        let others = Work {
            others: size,
            ..work()
        };
        vec![Step::new(0, work()), Step::new(size, others)]
    };
    let unseen = |size| {
        beside(size)
            .into_iter()
            .map(|step| Step {
                work: work(),
                ..step
            })
            .collect::<Vec<_>>()
    };
    // A short measurement is repeated more often.
    let backlogs = [(10_000, 9), (1_000_000, 3), (5_000_000, 2)]
        .into_iter()
        .map(|(size, rounds)| {
            let size = setup.count(size);
            Step {
                rounds: setup.rounds(rounds),
                ..Step::new(size, Work::new(size))
            }
        });
    let hosts = [1, 4, 16].into_iter().map(|hosts| Step {
        hosts,
        ..Step::new(hosts as u64, work())
    });
    let group = |what, prepare, steps| Group {
        what,
        cpu_only: false,
        body: 'x',
        flags: "",
        prepare,
        steps,
    };
    let mut groups = vec![
        group("messages in the stream", |_, _| Ok(()), backlogs.collect()),
        Group {
            flags: "--min-idle 1h",
            ..group(
                "pending deliveries of a dead consumer",
                |server, step| {
                    server.fill_stream(QUEUE, step.size, "x")?;
                    server.take("dead", step.size)
                },
                beside(100_000),
            )
        },
        group(
            "parked deliveries",
            |server, step| {
                server.fill_stream(QUEUE, step.size, &"x".repeat(100))?;
                server.park(step.size)
            },
            beside(1_000_000),
        ),
        group(
            "messages published with a delay",
            |server, step| server.fill_delayed(step.size),
            unseen(1_000_000),
        ),
        Group {
            body: 'd',
            flags: "--dead-letter orders:dead",
            ..group(
                "dead letters, while every message is dropped",
                |server, step| server.fill_stream(DEAD, step.size, &"x".repeat(100)),
                unseen(LETTERS),
            )
        },
        Group {
            cpu_only: true,
            ..group("hosts", |_, _| Ok(()), hosts.collect())
        },
    ];
    for group in &mut groups {
        for step in &mut group.steps {
            if setup.quick {
                step.rounds = 1;
            }
            if group.body == 'd' {
                step.work.fate = Some("dead_lettered");
                step.work.messages = step.work.messages.min(LETTERS);
            }
        }
    }
    groups
}

fn growth(setup: &Setup) -> Outcome<(String, Value)> {
    let (mut rows, mut raw) = (Vec::new(), Vec::new());
    for group in groups(setup) {
        let mut measured: Vec<Vec<Drained>> = group.steps.iter().map(|_| Vec::new()).collect();
        let rounds = group
            .steps
            .iter()
            .map(|step| step.rounds)
            .max()
            .unwrap_or_default();
        for round in 0..rounds {
            for (step, measured) in group.steps.iter().zip(&mut measured) {
                if round < step.rounds {
                    let drained = one(setup, &group, step)?;
                    eprintln!(
                        "   {} {}: {}/s",
                        step.size,
                        group.what,
                        thousands(drained.per_second)
                    );
                    measured.push(drained);
                }
            }
        }
        let cpu = |drained: &Drained| drained.consumer_us + drained.redis_us;
        let figures: Vec<[f64; 3]> = measured
            .iter()
            .map(|all| {
                [
                    middle(all, |drained| drained.per_second),
                    middle(all, |drained| drained.peak_memory),
                    middle(all, cpu),
                ]
            })
            .collect();
        for ((step, all), [rate, memory, cpu]) in group.steps.iter().zip(&measured).zip(&figures) {
            let [least_rate, least_memory, least_cpu] = figures[0];
            let grown = [
                (least_rate / rate, "rate"),
                (memory / least_memory, "memory"),
                (cpu / least_cpu, "CPU"),
            ];
            let grown = grown.iter().filter(|(ratio, what)| {
                *ratio > 1.0 + GROWTH && (!group.cpu_only || *what == "CPU")
            });
            let grown: Vec<&str> = grown.map(|(_, what)| *what).collect();
            rows.push([
                format!("{} {}", count(step.size), group.what),
                format!("{} ({:.2})", thousands(*rate), rate / least_rate),
                format!("{} ({:.2})", mebibytes(*memory), memory / least_memory),
                format!(
                    "{:.1} / {:.1} ({:.2})",
                    middle(all, |drained| drained.consumer_us),
                    middle(all, |drained| drained.redis_us),
                    cpu / least_cpu
                ),
                if grown.is_empty() {
                    "no".to_owned()
                } else {
                    format!("**{}**", grown.join(", "))
                },
            ]);
            raw.push(json!({
                "size": step.size, "of": group.what, "hosts": step.hosts, "messages": step.work.messages, "grows": grown,
                "rounds": all.iter().map(Drained::json).collect::<Vec<_>>(),
            }));
        }
    }
    let names = [
        "beside",
        "messages/s (to the smallest)",
        "memory (to the smallest)",
        "CPU us per message: host / Redis (to the smallest)",
        "grows",
    ];
    Ok((table(1, names, &rows), Value::Array(raw)))
}

fn one(setup: &Setup, group: &Group, step: &Step) -> Outcome<Drained> {
    let mut server = Server::start(setup.folder(), None)?;
    server.create_stream()?;
    (group.prepare)(&mut server, step)?;
    let body = format!("{}{}", group.body, "x".repeat(99));
    let messages = step.work.messages;
    let fill = |server: &mut Server| server.fill_stream(QUEUE, messages, &body);
    let host = setup
        .host(&server.url(), step.work.kind, "answers", true)
        .words(group.flags);
    let hosts = vec![host; step.hosts];
    if group.cpu_only {
        return drain_arriving(setup.folder(), &mut server, &hosts, &step.work, fill);
    }
    fill(&mut server)?;
    drain(setup.folder(), &mut server, &hosts, &step.work)
}

/// 1000000 -> 1,000,000
fn count(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|part| std::str::from_utf8(part).ok())
        .collect();
    parts.join(",")
}

/// A way that is not one acknowledgement.
struct Way {
    name: &'static str,
    body: char,
    reuse: bool,
    flags: &'static str,
    fate: &'static str,
    /// Of messages per second, or of their ratio to the plain loop.
    target: Target,
    to_bare: bool,
}

const FAILS: Way = Way {
    name: "fails three times, without a wait, and is dead-lettered",
    body: 'n',
    reuse: true,
    flags: "--max-deliveries 3 --backoff-first 0s --dead-letter orders:dead",
    fate: "dead_lettered",
    target: Target::AtLeast(0.15),
    to_bare: true,
};
const DROPPED: Way = Way {
    name: "is dropped, and dead-lettered",
    body: 'd',
    flags: "--dead-letter orders:dead",
    target: Target::AtLeast(0.3),
    ..FAILS
};
const WAYS: [Way; 5] = [
    FAILS,
    // Three fresh instances for each message cost more than the bound leaves.
    Way {
        reuse: false,
        target: Target::Open,
        ..FAILS
    },
    DROPPED,
    Way {
        reuse: false,
        ..DROPPED
    },
    Way {
        name: "is requeued with a delay of 1 ms, and acknowledged",
        body: 'p',
        flags: "",
        fate: "acked",
        target: Target::AtLeast(50_000.0),
        to_bare: false,
        ..FAILS
    },
];
const REPLAYS: Target = Target::AtLeast(50_000.0);

fn ways(setup: &Setup) -> Outcome<(String, Value)> {
    let messages = setup.count(LETTERS);
    let mut measured: Vec<Vec<(f64, Drained)>> = WAYS.iter().map(|_| Vec::new()).collect();
    for _ in 0..setup.rounds(ROUNDS) {
        for (way, measured) in WAYS.iter().zip(&mut measured) {
            let (bare, _) = setup.bare(setup.count(MESSAGES), 100)?;
            let mut server = Server::start(setup.folder(), None)?;
            server.create_stream()?;
            server.fill_stream(QUEUE, messages, &format!("{}{}", way.body, "x".repeat(99)))?;
            let work = Work {
                fate: Some(way.fate),
                ..Work::new(messages)
            };
            let host = setup
                .host(&server.url(), work.kind, "answers", way.reuse)
                .words(way.flags);
            let drained = drain(setup.folder(), &mut server, &[host], &work)?;
            eprintln!(
                "   each message {}: {}/s",
                way.name,
                thousands(drained.per_second)
            );
            measured.push((bare, drained));
        }
    }
    let (mut rows, mut raw) = (Vec::new(), Vec::new());
    for (way, all) in WAYS.iter().zip(&measured) {
        let rates: Vec<f64> = all.iter().map(|(_, drained)| drained.per_second).collect();
        let ratio = middle(all, |(bare, drained)| drained.per_second / bare);
        rows.push([
            format!("each message {}", way.name),
            if way.reuse { "reuse" } else { "fresh" }.to_owned(),
            format!(
                "{} ({})",
                thousands(median(&rates)),
                range(&rates, thousands)
            ),
            format!("{ratio:.2}"),
            way.target
                .judge(if way.to_bare { ratio } else { median(&rates) }),
            format!(
                "{:.1} / {:.1}",
                middle(all, |(_, one)| one.consumer_us),
                middle(all, |(_, one)| one.redis_us)
            ),
        ]);
        raw.push(json!({
            "way": way.name, "reuse": way.reuse, "ratio_to_bare": ratio,
            "rounds": all.iter().map(|(bare, one)| json!({ "bare": bare, "host": one.json() })).collect::<Vec<_>>(),
        }));
    }
    let replay = replay(setup)?;
    let letters = replay["entries"].as_f64().unwrap_or(f64::NAN);
    let us = |name: &str| replay[name].as_f64().unwrap_or(f64::NAN) * 1e6 / letters;
    let rates: Vec<f64> = replay["rounds"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    rows.push([
        "each dead letter is replayed (`hostler dlq replay`)".to_owned(),
        "-".to_owned(),
        format!(
            "{} ({})",
            thousands(median(&rates)),
            range(&rates, thousands)
        ),
        "-".to_owned(),
        REPLAYS.judge(median(&rates)),
        format!(
            "{:.1} / {:.1}",
            us("host_cpu_seconds"),
            us("redis_cpu_seconds")
        ),
    ]);
    raw.push(json!({ "way": "replay", "bench": replay }));
    let names = [
        "what",
        "instance",
        "messages/s (rounds)",
        "ratio to bare",
        "target",
        "CPU us per message: host / Redis",
    ];
    Ok((table(2, names, &rows), Value::Array(raw)))
}

fn replay(setup: &Setup) -> Outcome<Value> {
    let server = Server::start(setup.folder(), None)?;
    let program = Program::new(&setup.hostler).words(&format!(
        "bench --json --redis {} --replay {} --repeat {}",
        server.url(),
        setup.count(50_000),
        setup.rounds(ROUNDS)
    ));
    Ok(serde_json::from_str(
        &program.run(setup.folder(), Duration::from_secs(120))?,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(5_000_000), "5,000,000");
        assert_eq!(count(10_000), "10,000");
    }
}
