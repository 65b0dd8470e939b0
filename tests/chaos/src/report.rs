//! What runs have shown: one line of JSON for each run, and the page that is made of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::check::{Counts, Invariant, by_kind};
use crate::history::{FaultKind, Kind};
use crate::plan::{Cell, Plan};
use crate::run::Outcome;

/// A run, as it is kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// The cell of the matrix, or `random`.
    pub cell: String,
    /// The seed that replays its plan.
    pub seed: u64,
    /// The kind of queue.
    pub kind: Kind,
    /// The server.
    pub server: String,
    /// The version of hostler.
    pub hostler: String,
    /// Whether its hosts were optimized.
    #[serde(default)]
    pub optimized: bool,
    /// From the begin to the last host's end, in milliseconds.
    pub took_ms: u64,
    /// What became of the messages.
    pub counts: Counts,
    /// The faults.
    pub faults: BTreeMap<FaultKind, u64>,
    /// How many hosts aborted at each step of a message's way.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, u64>,
    /// How many hosts there were, one after the other.
    pub hosts: u64,
    /// Memory of the hosts, in KiB: the mean at the start, the mean at the end, the most.
    pub host_kib: [u64; 3],
    /// Memory of the server, in KiB: at the start, at the end, the most.
    pub redis_kib: [u64; 3],
    /// What was wrong.
    pub violations: usize,
}

impl Record {
    /// Of a run.
    #[must_use]
    pub fn of(plan: &Plan, outcome: &Outcome, optimized: bool) -> Self {
        let history = &outcome.history;
        let mean = |hosts: &[(u16, u64, u64)]| {
            let total: u64 = hosts.iter().map(|(_, rss, _)| rss).sum();
            total / (hosts.len() as u64).max(1)
        };
        let used: Vec<_> = history
            .samples
            .iter()
            .filter(|s| !s.hosts.is_empty())
            .collect();
        let hosts: Vec<u64> = used.iter().map(|sample| mean(&sample.hosts)).collect();
        let each = history.samples.iter().flat_map(|sample| &sample.hosts);
        let host_most = each.map(|(_, rss, _)| *rss).max().unwrap_or(0);
        let redis = history.samples.iter().map(|sample| sample.redis_kib);
        let redis: Vec<u64> = redis.filter(|&kib| kib > 0).collect();
        let ends = |all: &[u64]| {
            let at = |place: Option<&u64>| place.copied().unwrap_or(0);
            (at(all.first()), at(all.last()))
        };
        let ((host_first, host_last), (redis_first, redis_last)) = (ends(&hosts), ends(&redis));
        let ended = history.drains.iter().map(|drain| drain.ended_ms).max();
        let numbers: std::collections::BTreeSet<u16> = history
            .drains
            .iter()
            .map(|drain| drain.host)
            .chain(history.events.iter().map(|event| event.host))
            .collect();
        Self {
            cell: plan.cell.clone(),
            seed: plan.seed,
            kind: plan.load.kind,
            server: outcome.server.clone(),
            hostler: env!("CARGO_PKG_VERSION").to_owned(),
            optimized,
            took_ms: ended.unwrap_or(0),
            counts: outcome.judgement.counts.clone(),
            faults: by_kind(&history.faults),
            steps: history.steps.clone(),
            hosts: numbers.len() as u64,
            host_kib: [host_first, host_last, host_most],
            redis_kib: [
                redis_first,
                redis_last,
                redis.iter().copied().max().unwrap_or(0),
            ],
            violations: outcome.judgement.violations.len(),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let counts = &self.counts;
        let faults: u64 = self.faults.values().sum();
        format!(
            "{:<20} seed {:<20} {:>5.1} s  {:>7} ok {:>5} unknown {:>5} refused  {faults:>4} faults  \
             {} lost {} unexpected {} duplicated {} destroyed  {}",
            self.cell,
            self.seed,
            self.took_ms as f64 / 1_000.0,
            counts.ok,
            counts.unknown,
            counts.failed,
            counts.lost,
            counts.unexpected,
            counts.duplicated,
            counts.destroyed,
            if self.violations == 0 {
                "good"
            } else {
                "WRONG"
            },
        )
    }
}

/// Add a record to a file.
///
/// # Errors
/// It cannot be written.
pub fn add(path: &Path, record: &Record) -> Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)?;
    let line = serde_json::to_string(record)?;
    writeln!(file, "{line}").context("the record cannot be written")
}

/// The records of a file, in order.
///
/// # Errors
/// It cannot be read, or a line is no record.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).context("a line is no record"))
        .collect()
}

/// Put the text that is made of these records into a page, between its marks.
///
/// # Errors
/// The page lacks a mark.
pub fn write(page: &str, records: &[Record]) -> Result<String> {
    let mut page = page.to_owned();
    for (name, text) in [
        ("reliability-totals", totals(records)),
        ("reliability-faults", faults(records)),
        ("reliability-cells", cells(records)),
        ("reliability-storms", storms(records)),
        ("reliability-steps", steps(records)),
        ("reliability-promises", promises()),
    ] {
        let begin = format!("<!-- generated: {name} -->\n");
        let from = page
            .find(&begin)
            .with_context(|| format!("no mark {name}"))?
            + begin.len();
        let to = page[from..]
            .find("<!-- end -->")
            .context("no end of a mark")?
            + from;
        page.replace_range(from..to, &text);
    }
    Ok(page)
}

fn sum(records: &[Record], of: impl Fn(&Counts) -> u64) -> u64 {
    records.iter().map(|record| of(&record.counts)).sum()
}

/// A number with its thousands apart.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn totals(records: &[Record]) -> String {
    let mut servers: Vec<&str> = records.iter().map(|record| &*record.server).collect();
    servers.sort_unstable();
    servers.dedup();
    let faults: u64 = records
        .iter()
        .flat_map(|record| record.faults.values())
        .sum();
    let minutes = records.iter().map(|record| record.took_ms).sum::<u64>() / 60_000;
    let longest = records.iter().map(|record| record.counts.recovery_ms).max();
    let rows = [
        ("runs", spaced(records.len() as u64)),
        ("minutes of them", spaced(minutes)),
        ("servers", servers.join(", ")),
        (
            "messages that Redis confirmed",
            spaced(sum(records, |c| c.ok)),
        ),
        (
            "messages whose answer was lost",
            spaced(sum(records, |c| c.unknown)),
        ),
        (
            "of these, handled (*recovered*)",
            spaced(sum(records, |c| c.recovered)),
        ),
        ("attempts", spaced(sum(records, |c| c.starts))),
        ("faults", spaced(faults)),
        (
            "**lost** from queues at least once",
            spaced(lost(records, true)),
        ),
        (
            "lost from queues at most once",
            spaced(lost(records, false)),
        ),
        (
            "destroyed by the server: power losses, failovers",
            spaced(sum(records, |c| c.destroyed)),
        ),
        ("**unexpected**", spaced(sum(records, |c| c.unexpected))),
        (
            "**duplicated**: started again without a failure",
            spaced(sum(records, |c| c.duplicated)),
        ),
        (
            "of these, beyond what a fault explains",
            spaced(sum(records, |c| c.unexplained)),
        ),
        (
            "dead-lettered early: faults took all attempts",
            spaced(sum(records, |c| c.dead_early)),
        ),
        (
            "longest recovery",
            format!("{:.1} s", longest.unwrap_or(0) as f64 / 1_000.0),
        ),
        (
            "runs with a broken promise",
            spaced(records.iter().filter(|r| r.violations > 0).count() as u64),
        ),
    ];
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        text.push_str(&format!("| {name} | {value} |\n"));
    }
    text
}

fn lost(records: &[Record], at_least_once: bool) -> u64 {
    let of = records
        .iter()
        .filter(|r| r.kind.at_least_once() == at_least_once);
    of.map(|record| record.counts.lost).sum()
}

fn faults(records: &[Record]) -> String {
    let mut text = "| fault | times |\n|---|---|\n".to_owned();
    for kind in FaultKind::ALL {
        let times = records.iter().filter_map(|record| record.faults.get(&kind));
        let times: u64 = times.sum();
        if times > 0 {
            text.push_str(&format!("| {} | {} |\n", kind.label(), spaced(times)));
        }
    }
    text
}

fn cells(records: &[Record]) -> String {
    let mut by_cell = BTreeMap::<(&str, Kind), Vec<Record>>::new();
    for record in records.iter().filter(|record| !is_storm(record)) {
        let of = by_cell.entry((&record.cell, record.kind)).or_default();
        of.push(record.clone());
    }
    let mut text = "| cell | queue | runs | messages | faults | lost | duplicated | unexplained | dead early | recovery | host MiB | Redis MiB |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for ((cell, kind), of) in by_cell {
        let faults: u64 = of.iter().flat_map(|record| record.faults.values()).sum();
        let recovery = of
            .iter()
            .map(|record| record.counts.recovery_ms)
            .max()
            .unwrap_or(0);
        let mean =
            |place: fn(&Record) -> u64| of.iter().map(place).sum::<u64>() / of.len() as u64 / 1_024;
        text.push_str(&format!(
            "| `{cell}` | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} s | {} → {} | {} → {} |\n",
            kind.label(),
            of.len(),
            spaced(sum(&of, |c| c.ok)),
            spaced(faults),
            spaced(sum(&of, |c| c.lost)),
            spaced(sum(&of, |c| c.duplicated)),
            spaced(sum(&of, |c| c.unexplained)),
            spaced(sum(&of, |c| c.dead_early)),
            recovery as f64 / 1_000.0,
            mean(|record| record.host_kib[0]),
            mean(|record| record.host_kib[1]),
            mean(|record| record.redis_kib[0]),
            mean(|record| record.redis_kib[1]),
        ));
    }
    text
}

fn steps(records: &[Record]) -> String {
    let mut by_step = BTreeMap::<&str, [u64; 2]>::new();
    for record in records {
        for (step, times) in &record.steps {
            by_step.entry(step).or_default()[usize::from(record.kind == Kind::List)] += times;
        }
    }
    let mut text = "| step | hosts of streams | hosts of lists |\n|---|---|---|\n".to_owned();
    for (step, [stream, list]) in by_step {
        text.push_str(&format!("| `{step}` | {stream} | {list} |\n"));
    }
    text
}

fn is_storm(record: &Record) -> bool {
    let mut storms = Cell::storms().into_iter();
    storms.any(|storm| storm.name == record.cell)
}

/// Each storm, the last of its runs with the most messages.
fn storms(records: &[Record]) -> String {
    let mut by_storm = BTreeMap::<(&str, bool), &Record>::new();
    for record in records.iter().filter(|record| is_storm(record)) {
        let key = (&*record.cell, record.optimized);
        let before = by_storm.get(&key).map_or(0, |before| before.counts.ok);
        if record.counts.ok >= before {
            by_storm.insert(key, record);
        }
    }
    let mut text = "| storm | queue | messages | hosts | in a second | lost | duplicated | host MiB | Redis MiB |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for ((storm, optimized), record) in by_storm {
        let mib = |kib: [u64; 3]| format!("{} → {}", kib[0] / 1_024, kib[2] / 1_024);
        text.push_str(&format!(
            "| `{storm}`{} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            if optimized { "" } else { ", not optimized" },
            record.kind.label(),
            spaced(record.counts.ok),
            record.hosts,
            match record.counts.rate {
                0 => "-".to_owned(),
                rate => spaced(rate),
            },
            record.counts.lost,
            record.counts.duplicated,
            mib(record.host_kib),
            mib(record.redis_kib),
        ));
    }
    text
}

fn promises() -> String {
    let mut text = "| | promise |\n|---|---|\n".to_owned();
    for invariant in Invariant::ALL {
        let (number, meaning) = invariant.meaning();
        text.push_str(&format!("| {number} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        let spaced: Vec<String> = [0, 999, 1_000, 1_234_567].map(spaced).to_vec();
        assert_eq!(spaced, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_page_of_reliability_has_every_mark() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/measurements/reliability.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        write(&page, &[]).unwrap();
    }
}
