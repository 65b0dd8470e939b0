//! Another framework on the same queues: `ruststream-fred`, with a native handler that does nothing.

use serde_json::{Value, json};

use crate::drain::{Drained, Kind, Work, drain};
use crate::process::Program;
use crate::report::{Report, median, middle, range, table, thousands};
use crate::server::{QUEUE, Server};
use crate::{Outcome, Setup};

const MESSAGES: u64 = 200_000;
const ROUNDS: usize = 3;

/// A consumer: name, kind of queue, and how the peer names it or whether a host reuses instances.
#[derive(Clone, Copy)]
enum Consumer {
    Host { reuse: bool },
    Peer(&'static str),
}

const CONSUMERS: [(&str, Kind, Consumer); 7] = [
    (
        "hostler, stream, fresh",
        Kind::Stream,
        Consumer::Host { reuse: false },
    ),
    (
        "hostler, stream, reuse",
        Kind::Stream,
        Consumer::Host { reuse: true },
    ),
    (
        "ruststream-fred, stream, as shipped",
        Kind::Stream,
        Consumer::Peer("stream"),
    ),
    (
        "ruststream-fred, stream, pipelined",
        Kind::Stream,
        Consumer::Peer("pipelined"),
    ),
    (
        "hostler, reliable list, fresh",
        Kind::List,
        Consumer::Host { reuse: false },
    ),
    (
        "hostler, reliable list, reuse",
        Kind::List,
        Consumer::Host { reuse: true },
    ),
    (
        "ruststream-fred, reliable list",
        Kind::List,
        Consumer::Peer("reliable"),
    ),
];

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let peer = setup
        .peer
        .as_deref()
        .ok_or("it needs `--peer FILE`: run `make bench-peers`")?;
    let messages = setup.count(MESSAGES);
    let mut bare = Vec::new();
    let mut measured = CONSUMERS.map(|_| Vec::new());
    for round in 0..setup.rounds(ROUNDS) {
        bare.push(setup.bare(messages, 100)?);
        for turn in 0..CONSUMERS.len() {
            let index = (round + turn) % CONSUMERS.len();
            let (name, kind, consumer) = CONSUMERS[index];
            let mut server = Server::start(setup.folder(), None)?;
            let body = "x".repeat(100);
            match kind {
                Kind::Stream => {
                    server.create_stream()?;
                    server.fill_stream(QUEUE, messages, &body)?;
                }
                Kind::List => server.fill_list(messages, &body)?,
            }
            let url = server.url();
            let (program, fate) = match consumer {
                Consumer::Host { reuse } => (setup.host(&url, kind, "ack", reuse), Some("acked")),
                Consumer::Peer(how) => (Program::new(peer).words(&format!("{url} {how}")), None),
            };
            let work = Work {
                kind,
                fate,
                ..Work::new(messages)
            };
            let drained = drain(setup.folder(), &mut server, &[program], &work)?;
            eprintln!("   {name}: {}/s", thousands(drained.per_second));
            measured[index].push(drained);
        }
    }
    let bare_rate = median(&bare.iter().map(|(rate, _)| *rate).collect::<Vec<_>>());
    let mut rows = vec![[
        "bare, stream".to_owned(),
        thousands(bare_rate),
        "1.00".to_owned(),
        format!(
            "{:.1}",
            median(&bare.iter().map(|(_, us)| *us).collect::<Vec<_>>())
        ),
        "-".to_owned(),
    ]];
    for ((name, ..), drained) in CONSUMERS.iter().zip(&measured) {
        let rates: Vec<f64> = drained.iter().map(|drained| drained.per_second).collect();
        let ratios: Vec<f64> = rates
            .iter()
            .zip(&bare)
            .map(|(rate, (bare, _))| rate / bare)
            .collect();
        rows.push([
            (*name).to_owned(),
            format!(
                "{} ({})",
                thousands(median(&rates)),
                range(&rates, thousands)
            ),
            format!("{:.2}", median(&ratios)),
            format!("{:.1}", middle(drained, |drained| drained.consumer_us)),
            format!("{:.1}", middle(drained, |drained| drained.redis_us)),
        ]);
    }
    let names = [
        "consumer",
        "messages/s (rounds)",
        "ratio to bare",
        "consumer, CPU us",
        "Redis, CPU us",
    ];
    let text = format!(
        "{messages} messages of 100 bytes, in turn, rounds: {}; CPU time for each message.\n\n{}",
        bare.len(),
        table(1, names, &rows)
    );
    let raw = CONSUMERS.iter().zip(&measured).map(|((name, ..), drained)| {
        json!({ "consumer": name, "rounds": drained.iter().map(Drained::json).collect::<Vec<_>>() })
    });
    let raw = json!({ "bare": bare.iter().map(|(rate, _)| rate).collect::<Vec<_>>(), "consumers": Value::Array(raw.collect()) });
    Ok(Report {
        raw,
        text,
        plots: Vec::new(),
    })
}
