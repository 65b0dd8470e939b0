//! `hostler parts`: where the parts of a queue are.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

use crate::cli::text::parse;
use crate::cli::{Common, Exit, Failure, Reach, Variables, ask, output};
use crate::wire::{keys, parts};

/// A larger number of parts than this is a mistake.
const PARTS_MAX: u32 = 4096;
/// How many more parts than were asked for may be suggested: up to so many times as many.
const TIMES: u32 = 4;

/// Show where the parts of a queue are: which node of a cluster has which part
///
/// `orders` in 16 parts is 16 queues, `{orders:0}` to `{orders:15}`. Each has its own hosts. Parts do not spread
/// evenly over nodes: this command shows it, and names a number of parts that spreads better.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler parts --redis redis+cluster://n1:6379,n2:6379 --queue orders \\
    --parts 16
  hostler parts --redis redis://localhost --queue orders --parts 4 --json")]
pub(super) struct Args {
    /// The queue, without the number of a part
    #[arg(long, value_name = "NAME")]
    queue: String,

    /// How many parts it has
    #[arg(long, value_name = "N", value_parser = parse::<NonZeroU32>)]
    parts: NonZeroU32,

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Shown {
    queue: String,
    parts: Vec<Part>,
    /// How many parts each node has.
    nodes: BTreeMap<String, usize>,
    /// A number of parts that spreads better, if there is one.
    better: Option<u32>,
}

#[derive(Serialize)]
struct Part {
    key: String,
    slot: u16,
    node: String,
}

/// Only a plain name can have parts.
pub(super) fn check_parted(queue: &str) -> Result<(), Failure> {
    if parts::can_have_parts(queue) {
        return Ok(());
    }
    let what = format!("`{queue}` cannot have parts: its name goes between braces");
    Err(Failure::new(Exit::Usage, what).hint("give a name without braces, such as `orders`"))
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    check_parted(&args.queue)?;
    let count = args.parts.get();
    if count > PARTS_MAX {
        let what = format!("{count} parts are too many: at most {PARTS_MAX}");
        return Err(Failure::new(Exit::Usage, what));
    }
    let (json, queue) = (args.common.json, args.queue);
    let shown = ask(args.common.flags, variables, "parts", async |session| {
        let owners = session.retry(async || session.connector.owners().await);
        let owners = owners.await?;
        let place = |number: u32| {
            let key = parts::part(&queue, number);
            let slot = keys::slot(&key);
            let node = owners.of(slot).to_owned();
            Part { key, slot, node }
        };
        let fullest = |count: u32| {
            let mut filled: BTreeMap<String, usize> = BTreeMap::new();
            for part in (0..count).map(place) {
                *filled.entry(part.node).or_default() += 1;
            }
            filled.into_values().max().unwrap_or(0)
        };
        // How much more than its share the fullest node has.
        let excess = |count: u32| {
            let share = f64::from(count) / owners.nodes().len().max(1) as f64;
            fullest(count) as f64 / share
        };
        let mut better = None;
        let mut least = excess(count);
        for more in count + 1..=(count * TIMES).min(PARTS_MAX) {
            // A few per cent are not worth more parts.
            if excess(more) < 0.95 * least {
                (better, least) = (Some(more), excess(more));
            }
        }
        let nodes = owners.nodes().iter().map(|node| (node.clone(), 0));
        let mut nodes: BTreeMap<String, usize> = nodes.collect();
        let parts: Vec<Part> = (0..count).map(place).collect();
        for part in &parts {
            *nodes.entry(part.node.clone()).or_default() += 1;
        }
        Ok(Shown {
            queue: queue.clone(),
            parts,
            nodes,
            better,
        })
    });
    output::either(json, &shown?, text)
}

fn text(shown: &Shown) -> String {
    let rows = shown.parts.iter().map(|part| {
        let slot = part.slot.to_string();
        [part.key.clone(), slot, part.node.clone()]
    });
    let mut text = output::titled(["part", "slot", "node"], rows) + "\n";
    let all = shown.parts.len();
    let of_node = |(node, parts): (&String, &usize)| format!("{node}: {parts} of {all}\n");
    text.extend(shown.nodes.iter().map(of_node));
    if let Some(better) = shown.better {
        text.push_str(&format!("{better} parts spread better\n"));
    }
    text
}
