//! The fault suite: `chaos run`, `chaos matrix`, `chaos long`, `chaos report`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use hostler_chaos::history::FaultKind;
use hostler_chaos::plan::{Cell, Plan};
use hostler_chaos::report::{self, Record};
use hostler_chaos::run::{self, Programs};
use hostler_tests::redis::RedisServer;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// Drive hosts and servers through faults, and judge what happens.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone, Debug)]
struct Common {
    /// An optimized host under test; without, target/debug/hostler-under-test, which has fault points
    #[arg(long, global = true, value_name = "PATH")]
    hostler: Option<PathBuf>,
    /// A host of another release: the hosts of both serve one queue, and replace each other
    #[arg(long, global = true, value_name = "PATH")]
    old_hostler: Option<PathBuf>,
    /// Add a line for each run to this file
    #[arg(long, global = true, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Where the histories and logs of bad runs are kept
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "target/chaos"
    )]
    keep: PathBuf,
}

impl Common {
    /// Whether all hosts have fault points: only those have them that the tests build.
    fn fault_points(&self) -> bool {
        self.hostler.is_none() && self.old_hostler.is_none()
    }

    fn random(&self, seed: u64) -> Cell {
        Cell::random(seed, self.old_hostler.is_some(), self.fault_points())
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One run: a cell of the matrix, or the combination that a seed draws
    Run {
        /// The seed; without, one is drawn and printed
        #[arg(long)]
        seed: Option<u64>,
        /// The cell; without, a combination drawn by the seed
        #[arg(long)]
        cell: Option<String>,
        /// So many messages instead of those of the cell
        #[arg(long)]
        messages: Option<u32>,
        /// So many in a second
        #[arg(long)]
        rate: Option<u32>,
        /// So many hosts are killed, at equal times
        #[arg(long)]
        kills: Option<u64>,
        /// Keep the history and the logs of a good run as well
        #[arg(long)]
        keep_good: bool,
    },
    /// Every cell of the matrix, then combinations until the time is over
    Matrix {
        /// The time, in seconds: no run begins after it
        #[arg(long, default_value_t = 420)]
        seconds: u64,
        /// The seed of the first run; each further run takes the next one
        #[arg(long)]
        seed: Option<u64>,
        /// Only the cells whose names begin so; no combinations
        #[arg(long)]
        only: Option<String>,
        /// How many runs at the same time
        #[arg(long, default_value_t = 2)]
        parallel: usize,
    },
    /// Combinations for hours; goes on where it stopped
    Long {
        /// The hours, all calls together
        #[arg(long)]
        hours: f64,
        /// Where the seed and the counts are kept
        #[arg(long, value_name = "FILE", default_value = "target/chaos/long.json")]
        state: PathBuf,
    },
    /// Put what the records say into a page
    Report {
        /// The page
        #[arg(long, default_value = "docs/measurements/reliability.md")]
        page: PathBuf,
    },
    /// Storms: much at once
    Storms {
        /// Only those whose names begin so
        #[arg(long)]
        only: Option<String>,
        /// So many messages instead of those of the storm
        #[arg(long)]
        messages: Option<u32>,
    },
    /// See a host refuse the server that HOSTLER_TEST_REDIS_SERVER names, because it is too old
    Refuses,
    /// The cells of the matrix, and the storms
    Cells,
}

/// In a long run, one of this number of runs is a storm.
const STORM_EVERY: u64 = 40;

/// Where a long run stands.
#[derive(Debug, Default, Deserialize, Serialize)]
struct State {
    next_seed: u64,
    runs: u64,
    bad: u64,
    took_ms: u64,
}

fn say(text: &str) {
    // The reader may have gone.
    drop(writeln!(std::io::stdout(), "{text}"));
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Arguments {
        mut common,
        command,
    } = Arguments::parse();
    // Hosts run in another directory.
    let programs = [&mut common.hostler, &mut common.old_hostler];
    for path in programs.into_iter().flatten() {
        *path = std::fs::canonicalize(&*path).with_context(|| path.display().to_string())?;
    }
    let is_good = match command {
        Command::Run {
            seed,
            cell,
            messages,
            rate,
            kills,
            keep_good,
        } => {
            let seed = seed.unwrap_or_else(|| fastrand::u64(..));
            let mut cell = cell_of(&common, cell.as_deref(), seed)?;
            cell.load.messages = messages.unwrap_or(cell.load.messages);
            cell.load.rate = rate.unwrap_or(cell.load.rate);
            let mut plan = cell.plan(seed);
            if let Some(kills) = kills {
                kill_hosts(&mut plan, kills);
            }
            one(&common, &plan, keep_good).await?
        }
        Command::Matrix {
            seconds,
            seed,
            only,
            parallel,
        } => matrix(&common, seconds, seed, only.as_deref(), parallel).await?,
        Command::Long { hours, state } => long(&common, hours, &state).await?,
        Command::Report { page } => {
            let records = common.records.context("--records says where they are")?;
            let text = std::fs::read_to_string(&page)?;
            let text = report::write(&text, &report::read(&records)?)?;
            std::fs::write(&page, text)?;
            true
        }
        Command::Storms { only, messages } => {
            let mut bad = 0;
            for mut cell in Cell::storms() {
                if only
                    .as_ref()
                    .is_none_or(|only| cell.name.starts_with(&**only))
                {
                    cell.load.messages = messages.unwrap_or(cell.load.messages);
                    bad += u32::from(
                        !one(&common, &cell.plan(fastrand::u64(..1 << 48)), false).await?,
                    );
                }
            }
            bad == 0
        }
        Command::Refuses => {
            let said = run::refusal(&RedisServer::start()).await?;
            say(said.trim());
            said.contains("needs 7.0 or newer")
        }
        Command::Cells => {
            for cell in Cell::all()
                .into_iter()
                .chain(Cell::storms())
                .chain([Cell::kills()])
            {
                say(&format!(
                    "{:<20} {:<14} {}",
                    cell.name,
                    cell.load.kind.label(),
                    cell.about
                ));
            }
            true
        }
    };
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cell_of(common: &Common, name: Option<&str>, seed: u64) -> Result<Cell> {
    match name {
        Some("random") | None => Ok(common.random(seed)),
        Some(name) => match Cell::named(name) {
            Some(cell) => Ok(cell),
            None => bail!("no cell is called {name}: see `chaos cells`"),
        },
    }
}

/// Kill `kills` hosts while messages are published, instead of the faults of the plan.
fn kill_hosts(plan: &mut Plan, kills: u64) {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let lasts = u64::from(plan.load.messages) * 1_000 / u64::from(plan.load.rate.max(1));
    plan.actions = (0..kills)
        .map(|number| hostler_chaos::plan::Action {
            at_ms: 500 + number * lasts.saturating_sub(500) / kills.max(1),
            for_ms: 0,
            kind: FaultKind::KillHost,
            pick: random.u64(..),
        })
        .collect();
}

/// One run. Whether nothing was wrong.
async fn one(common: &Common, plan: &Plan, keep_good: bool) -> Result<bool> {
    let programs = Programs {
        hostler: common.hostler.clone(),
        old: common.old_hostler.clone(),
    };
    let outcome = run::run(plan, &programs)
        .await
        .with_context(|| format!("chaos run --cell {} --seed {}", plan.cell, plan.seed))?;
    let record = Record::of(plan, &outcome, common.hostler.is_some());
    say(&record.line());
    if let Some(records) = &common.records {
        report::add(records, &record)?;
    }
    let violations = outcome.judgement.violations.clone();
    for wrong in violations.iter().take(20) {
        let message = wrong
            .message
            .map_or_else(String::new, |number| format!(" message {number}:"));
        say(&format!(
            "  {}{message} {}",
            wrong.invariant.meaning().0,
            wrong.what
        ));
    }
    if !violations.is_empty() || keep_good {
        let to = common.keep.join(format!("{}-{}", plan.cell, plan.seed));
        run::keep(outcome, &to)?;
        say(&format!(
            "  {} violations; history and logs: {}",
            violations.len(),
            to.display()
        ));
        say(&format!(
            "  again: chaos run --cell {} --seed {}",
            plan.cell, plan.seed
        ));
    }
    Ok(violations.is_empty())
}

/// The cells, from one that the seed chooses, then combinations; some of them at the same time.
async fn matrix(
    common: &Common,
    seconds: u64,
    seed: Option<u64>,
    only: Option<&str>,
    parallel: usize,
) -> Result<bool> {
    let begun = Instant::now();
    let time = Duration::from_secs(seconds);
    let first = seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    say(&format!("seed {first}"));
    let has_old = common.old_hostler.is_some();
    let upgrades = Cell::upgrades().into_iter().filter(|_| has_old);
    let wanted = |cell: &Cell| {
        only.is_none_or(|only| cell.name.starts_with(only))
            && (common.fault_points() || !cell.needs_fault_points())
    };
    let mut cells: Vec<Cell> = upgrades.chain(Cell::all()).filter(wanted).collect();
    if cells.is_empty() {
        bail!("no cell has such a name: see `chaos cells`");
    }
    // If the time is too short for all of them, each seed leaves out others.
    let turn = usize::try_from(first % cells.len() as u64)?;
    cells.rotate_left(turn);
    let mut cells = cells.into_iter();
    let mut seeds = first..;
    let mut running = JoinSet::new();
    let mut bad = 0;
    loop {
        while running.len() < parallel.max(1) && begun.elapsed() < time {
            let Some(seed) = seeds.next() else { break };
            let cell = match cells.next() {
                Some(cell) => cell,
                None if only.is_some() => break,
                None => common.random(seed),
            };
            let (common, plan) = (common.clone(), cell.plan(seed));
            running.spawn(async move { one(&common, &plan, false).await });
        }
        let Some(ended) = running.join_next().await else {
            break;
        };
        bad += u32::from(!ended??);
    }
    let left_out = cells.len();
    if left_out > 0 {
        say(&format!(
            "{left_out} cells were left out: the time was over"
        ));
    }
    Ok(bad == 0)
}

async fn long(common: &Common, hours: f64, path: &Path) -> Result<bool> {
    let mut state: State = match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).context("the state is none")?,
        Err(_) => State {
            next_seed: fastrand::u64(..1 << 48),
            ..State::default()
        },
    };
    let time_ms = (hours * 3_600_000.0) as u64;
    let mut bad = 0;
    while state.took_ms < time_ms {
        let begun = Instant::now();
        // A storm now and then, each of them in turn.
        let storms = Cell::storms();
        let cell = match (state.runs % STORM_EVERY, state.runs / STORM_EVERY) {
            (9, turn) => storms[usize::try_from(turn)? % storms.len()].clone(),
            _ => common.random(state.next_seed),
        };
        let is_good = one(common, &cell.plan(state.next_seed), false).await?;
        bad += u64::from(!is_good);
        state.next_seed += 1;
        state.runs += 1;
        state.bad += u64::from(!is_good);
        state.took_ms += u64::try_from(begun.elapsed().as_millis())?;
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(path, serde_json::to_vec(&state)?)?;
    }
    say(&format!(
        "{} runs, {} of them bad, {} minutes",
        state.runs,
        state.bad,
        state.took_ms / 60_000
    ));
    Ok(bad == 0)
}
