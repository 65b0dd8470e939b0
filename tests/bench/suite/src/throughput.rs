//! Messages per second, as a ratio to the plain loop of the Redis client: the program `bare`.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::Program;
use crate::report::{Report, Target, median, range, table, thousands};
use crate::server::Server;
use crate::{Outcome, Setup, plot};

const MESSAGES: u64 = 200_000;
const ROUNDS: usize = 4;
const WITHIN: Duration = Duration::from_secs(300);
/// An order that the example handlers accept.
const ORDER: &str = r#"{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid","items":["espresso beans 1 kg"],"gift":false}"#;
const CALL_P99_MS: f64 = 5.0;

/// One way to handle messages.
struct Way {
    name: &'static str,
    flags: &'static str,
    guest: &'static str,
    /// It is compared with the way of this name; `None`: with the plain loop.
    beside: Option<&'static str>,
    target: Target,
}

const fn way(name: &'static str, flags: &'static str, target: Target) -> Way {
    Way {
        name,
        flags,
        guest: "ack",
        beside: None,
        target,
    }
}

const fn beside(name: &'static str, flags: &'static str, beside: &'static str, least: f64) -> Way {
    Way {
        beside: Some(beside),
        ..way(name, flags, Target::AtLeast(least))
    }
}

const FRESH: &str = "stream, fresh";
const REUSE: &str = "stream, reuse";
const WAYS: [Way; 15] = [
    way(FRESH, "--mode fresh", Target::AtLeast(0.43)),
    beside(
        "stream, fresh, 1 KiB",
        "--mode fresh --body 1KiB",
        FRESH,
        0.75,
    ),
    beside(
        "stream, fresh, retention `acked`",
        "--mode fresh --retention acked",
        FRESH,
        0.9,
    ),
    way(REUSE, "--mode reuse", Target::AtLeast(0.85)),
    beside(
        "stream, reuse, 1 KiB",
        "--mode reuse --body 1KiB",
        REUSE,
        0.75,
    ),
    beside(
        "stream, reuse, retention `acked`",
        "--mode reuse --retention acked",
        REUSE,
        0.9,
    ),
    Way {
        guest: "ack_batch",
        ..way(
            "stream, batches of 16",
            "--mode batch --batch-size 16",
            Target::AtLeast(0.85),
        )
    },
    Way {
        guest: "orders_batch_handler",
        ..way(
            "stream, orders, batches of 16",
            "--mode batch --batch-size 16",
            Target::Open,
        )
    },
    Way {
        guest: "orders_handler",
        ..way("stream, orders, fresh", "--mode fresh", Target::Open)
    },
    Way {
        guest: "orders_handler",
        ..way("stream, orders, reuse", "--mode reuse", Target::Open)
    },
    way(
        "reliable list, fresh",
        "--list --reliable --mode fresh",
        Target::AtLeast(0.4),
    ),
    way(
        "reliable list, reuse",
        "--list --reliable --mode reuse",
        Target::AtLeast(0.6),
    ),
    way(
        "reliable list, recovery set, reuse",
        "--list --reliable --recovery --mode reuse",
        Target::Open,
    ),
    way("simple list, reuse", "--list --mode reuse", Target::Open),
    way("channel, reuse", "--channel --mode reuse", Target::Open),
];

/// One round of a way.
struct Measured {
    bare: f64,
    /// The report of `hostler bench`.
    bench: Value,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.number("messages_per_second")
    }

    fn number(&self, name: &str) -> f64 {
        self.bench["sandbox"][name].as_f64().unwrap_or(f64::NAN)
    }
}

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let messages = setup.count(MESSAGES);
    let order = setup.folder().join("order.json");
    fs::write(&order, ORDER)?;
    let mut all: Vec<Vec<Measured>> = WAYS.iter().map(|_| Vec::new()).collect();
    for round in 0..setup.rounds(ROUNDS) {
        // Each way is beside the plain loop, and beside the way that it is compared with; the order changes.
        let mut turns: Vec<usize> = (0..WAYS.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let way = &WAYS[turn];
            let (bare, _) = setup.bare(messages, 100)?;
            let server = Server::start(setup.folder(), None)?;
            let mut program = Program::new(&setup.hostler)
                .words(&format!(
                    "bench --json --rate 0 --repeat 1 --concurrency 16 --messages {messages}"
                ))
                .words(&format!("--redis {} {}", server.url(), way.flags))
                .arg("--handler")
                .path(&setup.guest(way.guest));
            if way.guest != "ack" {
                program = program.arg("--body-file").path(&order);
            }
            let printed = program.run(setup.folder(), WITHIN)?;
            all[turn].push(Measured {
                bare,
                bench: serde_json::from_str(&printed)?,
            });
            eprintln!(
                "   {}: {} messages/s, bare {}",
                way.name,
                thousands(all[turn][round].rate()),
                thousands(bare)
            );
        }
    }
    Ok(report(&all, messages))
}

/// The ratio of each round.
fn ratios(all: &[Vec<Measured>], way: usize) -> Vec<f64> {
    let base = WAYS[way]
        .beside
        .and_then(|name| WAYS.iter().position(|way| way.name == name));
    let ratio = |(round, measured): (usize, &Measured)| match base {
        Some(base) => measured.rate() / all[base][round].rate(),
        None => measured.rate() / measured.bare,
    };
    all[way].iter().enumerate().map(ratio).collect()
}

fn report(all: &[Vec<Measured>], messages: u64) -> Report {
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    for (index, (way, rounds)) in WAYS.iter().zip(all).enumerate() {
        let figures = |name: &str| {
            rounds
                .iter()
                .map(|round| round.number(name))
                .collect::<Vec<_>>()
        };
        let middle = |name: &str| median(&figures(name));
        let us = |name: &str| middle(name) * 1e6 / messages as f64;
        let rates = figures("messages_per_second");
        let ratios = ratios(all, index);
        let floor = rounds.iter().map(|round| {
            round.bench["floor"]["messages_per_second"]
                .as_f64()
                .unwrap_or(f64::NAN)
        });
        let floor = median(&floor.collect::<Vec<_>>());
        rows.push([
            way.name.to_owned(),
            format!(
                "{} ({})",
                thousands(median(&rates)),
                range(&rates, thousands)
            ),
            format!(
                "{:.2} ({})",
                median(&ratios),
                range(&ratios, |ratio| format!("{ratio:.2}"))
            ),
            way.beside.unwrap_or("bare").to_owned(),
            way.target.judge(median(&ratios)),
            thousands(floor),
            format!(
                "{:.1} / {:.0}",
                middle("call_p50_us"),
                middle("call_p99_us")
            ),
            format!(
                "{:.1} / {:.1}",
                us("host_cpu_seconds"),
                us("redis_cpu_seconds")
            ),
        ]);
        raw.push(json!({
            "way": way.name,
            "flags": way.flags,
            "handler": way.guest,
            "ratio": median(&ratios),
            "ratio_to": way.beside.unwrap_or("bare"),
            "rounds": rounds.iter().map(|round| json!({ "bare": round.bare, "bench": round.bench })).collect::<Vec<_>>(),
        }));
    }
    let names = [
        "what",
        "messages/s (rounds)",
        "ratio (rounds)",
        "ratio to",
        "target",
        "floor, messages/s",
        "call p50 / p99, us",
        "CPU us per message: host / Redis",
    ];
    let bare: Vec<f64> = all.iter().flatten().map(|round| round.bare).collect();
    let p99 = median(
        &all[0]
            .iter()
            .map(|round| round.number("call_p99_us") / 1e3)
            .collect::<Vec<_>>(),
    );
    let text = format!(
        "{messages} messages of 100 bytes (orders: {} bytes), concurrency 16, rounds: {}. Bare: {} messages a second \
         ({}).\n\n{}\nThe 99th percentile of a call with a fresh instance: {p99:.2} ms, {}.\n",
        ORDER.len(),
        all[0].len(),
        thousands(median(&bare)),
        range(&bare, thousands),
        table(1, names, &rows),
        Target::AtMost(CALL_P99_MS).judge(p99),
    );
    let bars: Vec<(String, f64)> = WAYS
        .iter()
        .zip(all)
        .map(|(way, rounds)| {
            let to_bare: Vec<f64> = rounds
                .iter()
                .map(|round| round.rate() / round.bare)
                .collect();
            (way.name.replace('`', ""), median(&to_bare))
        })
        .collect();
    let plot = plot::bars(
        "Messages per second, as a ratio to the plain loop of the Redis client",
        &bars,
    );
    Report {
        raw: json!(raw),
        text,
        plots: plot.map(|svg| ("throughput", svg)).into_iter().collect(),
    }
}
