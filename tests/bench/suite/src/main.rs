//! Measures what docs/measurements/performance.md says about the speed of hostler, and writes it there.
//!
//! ```text
//! suite --hostler FILE --guests FOLDER [--peer FILE] [--only PART,PART] [--quick] [--docs FOLDER]
//! ```
//!
//! Every measurement has a Redis of its own on 127.0.0.1, and a time after which it has failed. Programs run in
//! turn. With `--quick` the counts are small: it shows that all parts work, and its figures mean nothing.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::{Value, json};

mod costs;
mod drain;
mod idle;
mod latency;
mod peers;
mod plot;
mod process;
mod report;
mod scaling;
mod server;
mod throughput;

use process::Program;
use report::Report;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn fail<T>(what: impl Into<String>) -> Outcome<T> {
    Err(what.into().into())
}

const USAGE: &str = "usage: suite --hostler FILE --guests FOLDER [--peer FILE] [--only PART,PART] [--quick] \
                     [--docs FOLDER]";

type Part = fn(&Setup) -> Outcome<Report>;

/// The parts, and whether they run if none are named.
const PARTS: [(&str, bool, Part); 6] = [
    ("throughput", true, throughput::measure),
    ("latency", true, latency::measure),
    ("idle", true, idle::measure),
    ("scaling", true, scaling::measure),
    ("costs", true, costs::measure),
    ("peers", false, peers::measure),
];

/// What is measured, and how.
pub struct Setup {
    hostler: PathBuf,
    /// The program `bare`, which is beside this one.
    bare: PathBuf,
    peer: Option<PathBuf>,
    guests: PathBuf,
    quick: bool,
    /// Files of this run.
    folder: tempfile::TempDir,
}

impl Setup {
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A component.
    fn guest(&self, name: &str) -> PathBuf {
        self.guests.join(format!("{name}.wasm"))
    }

    /// This many, or few.
    fn count(&self, messages: u64) -> u64 {
        if self.quick {
            (messages / 200).max(500)
        } else {
            messages
        }
    }

    fn rounds(&self, rounds: usize) -> usize {
        if self.quick { 1 } else { rounds }
    }

    fn seconds(&self, seconds: u64) -> u64 {
        if self.quick { 2 } else { seconds }
    }

    /// A host of the queue at this URL.
    fn host(&self, url: &str, kind: drain::Kind, guest: &str, reuse: bool) -> Program {
        let queue = match kind {
            drain::Kind::Stream => format!("--stream {} --group {}", server::QUEUE, server::GROUP),
            drain::Kind::List => format!("--list {} --reliable", server::QUEUE),
        };
        let reuse = if reuse { 10_000 } else { 1 };
        Program::new(&self.hostler)
            .words(&format!(
                "run --redis {url} {queue} --reuse {reuse} --concurrency 16"
            ))
            .words("--log-level warn --summary json --handler")
            .path(&self.guest(guest))
    }

    /// The plain loop on a stream of its own: messages a second, and microseconds of CPU time for each.
    fn bare(&self, messages: u64, bytes: u64) -> Outcome<(f64, f64)> {
        let server = server::Server::start(self.folder(), None)?;
        let program =
            Program::new(&self.bare).words(&format!("{} {messages} {bytes}", server.url()));
        let printed = program.run(self.folder(), std::time::Duration::from_secs(120))?;
        let mut words = printed.split_whitespace();
        let per_second = words
            .next()
            .ok_or("the bare loop printed nothing")?
            .parse()?;
        let cpu = words
            .nth(1)
            .ok_or("the bare loop printed no CPU time")?
            .parse()?;
        Ok((per_second, cpu))
    }
}

struct Arguments {
    setup: Setup,
    docs: PathBuf,
    only: Vec<String>,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Outcome<Arguments> {
    let mut given = std::env::args().skip(1);
    let (mut hostler, mut guests, mut peer) = (None, None, None);
    let (mut only, mut quick, mut docs) = (Vec::new(), false, PathBuf::from("docs"));
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(USAGE);
        match flag.as_str() {
            "--hostler" => hostler = Some(fs::canonicalize(value()?)?),
            "--guests" => guests = Some(fs::canonicalize(value()?)?),
            "--peer" => peer = Some(fs::canonicalize(value()?)?),
            "--only" => only = value()?.split(',').map(str::to_owned).collect(),
            "--docs" => docs = PathBuf::from(value()?),
            "--quick" => quick = true,
            _ => return fail(USAGE),
        }
    }
    if let Some(unknown) = only
        .iter()
        .find(|name| !PARTS.iter().any(|(known, ..)| known == name))
    {
        let known: Vec<&str> = PARTS.iter().map(|(name, ..)| *name).collect();
        return fail(format!(
            "there is no part `{unknown}`; there are {}",
            known.join(", ")
        ));
    }
    let setup = Setup {
        hostler: hostler.ok_or(USAGE)?,
        bare: std::env::current_exe()?.with_file_name("bare"),
        guests: guests.ok_or(USAGE)?,
        peer,
        quick,
        folder: tempfile::Builder::new()
            .prefix("hostler-bench-")
            .tempdir()?,
    };
    Ok(Arguments { setup, docs, only })
}

fn run(Arguments { setup, docs, only }: &Arguments) -> Outcome<()> {
    let machine = machine(setup)?;
    let mut failed = Vec::new();
    for (name, always, measure) in PARTS {
        if !(only.iter().any(|only| only == name) || only.is_empty() && always) {
            continue;
        }
        let began = Instant::now();
        eprintln!("== {name}");
        // The other parts are worth their time, too.
        match measure(setup).and_then(|report| keep(setup, docs, name, &machine, report)) {
            Ok(()) => eprintln!("== {name}: {} s", began.elapsed().as_secs()),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => fail(failed.join("\n")),
    }
}

/// Write the results, the pictures and the block of the page.
fn keep(setup: &Setup, docs: &Path, name: &str, machine: &Value, report: Report) -> Outcome<()> {
    let results = docs.join("performance");
    let images = docs.join("images");
    fs::create_dir_all(&results)?;
    fs::create_dir_all(&images)?;
    let mut text = report.text;
    for (picture, svg) in report.plots {
        let file = format!("performance-{picture}.svg");
        fs::write(images.join(&file), svg)?;
        text.push_str(&format!(
            "\n![{}](../images/{file})\n",
            picture.replace('-', " ")
        ));
    }
    if setup.quick {
        text.insert_str(0, "A quick run: these figures mean nothing.\n\n");
    }
    let words = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
    text.push_str(&format!(
        "\n{}, {} cores, {}; {}; {}. Raw results: `docs/performance/{name}.json`.\n",
        words("processor"),
        machine["cores"],
        words("kernel"),
        words("redis"),
        words("hostler")
    ));
    let kept = json!({ "machine": machine, "quick": setup.quick, "results": report.raw });
    fs::write(
        results.join(format!("{name}.json")),
        format!("{}\n", serde_json::to_string_pretty(&kept)?),
    )?;
    report::replace_block(&docs.join("measurements/performance.md"), name, &text)
}

fn machine(setup: &Setup) -> Outcome<Value> {
    let processors = fs::read_to_string("/proc/cpuinfo")?;
    let processor = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let processor = processor.map(|rest| rest.trim_start_matches(['\t', ' ', ':']));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // Behind the two numbers stands who built it.
    let kernel: Vec<&str> = release.splitn(3, '.').take(2).collect();
    let first_line = |program: &Path| -> Outcome<String> {
        let printed = Command::new(program).arg("--version").output()?.stdout;
        Ok(String::from_utf8_lossy(&printed)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned())
    };
    let redis = first_line(Path::new("redis-server"))?;
    let version = redis
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    Ok(json!({
        "processor": processor.unwrap_or("unknown processor"),
        "cores": std::thread::available_parallelism()?.get(),
        "kernel": format!("Linux {}", kernel.join(".").trim()),
        "redis": format!("Redis {}", version.unwrap_or("of an unknown version")),
        "hostler": first_line(&setup.hostler)?,
    }))
}
