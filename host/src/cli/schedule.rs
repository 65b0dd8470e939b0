//! `hostler schedule`: the messages that a queue gets at certain times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::Serialize;
use tokio::time::sleep;

use crate::cli::message::{Body, Header, header};
use crate::cli::named::{FoundQueue, OfQueue, with_queue};
use crate::cli::session::Session;
use crate::cli::text::{UNKNOWN, one_line, or_dash, parse, time_to_seconds};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::QueueKind;
use crate::queue::kind::Place;
use crate::schedule::{
    BODY_MAX, CLI, CatchUp, Changed, Defined, Definition, HeaderTable, Overlap, ScheduleSeen,
    Store, Timing, check_name, seen,
};

/// How long `run` waits until a host has published the message.
const RUN_WITHIN: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How often a change is tried that others prevent.
const TRIES: usize = 10;

/// Messages that a queue gets at certain times
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The hosts of the queue publish them, by the clock of Redis. The file of a queue
has tables `[schedule.NAME]`; schedules that `add` writes stay until `remove`.
Hosts see a change within a second, the first schedule within 15 seconds.

Examples:
  hostler schedule list --queue orders
  hostler schedule add nightly --queue orders --cron '30 2 * * *' \\
    --zone Europe/Berlin --body '{\"job\":\"report\"}'
  hostler schedule next nightly --queue orders --count 5
  hostler schedule run nightly --queue orders
  hostler schedule pause nightly --queue orders
  hostler schedule resume nightly --queue orders
  hostler schedule remove nightly --queue orders")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the schedules of a queue: their next and last ticks, and what is wrong
    List(OfQueue),
    /// Add a schedule, or replace one that was added so
    Add(AddArgs),
    /// Remove a schedule; one of a file comes back when a host with that file starts
    Remove(OneArgs),
    /// Let a schedule have no ticks until it is resumed
    Pause(OneArgs),
    /// Let a schedule have ticks again, from now on
    Resume(OneArgs),
    /// Publish one message now, beside the ticks
    Run(OneArgs),
    /// Show the next ticks
    Next(NextArgs),
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The schedule
    #[arg(value_name = "NAME")]
    schedule: String,

    #[command(flatten)]
    on: OfQueue,
}

#[derive(Debug, clap::Args)]
struct NextArgs {
    #[command(flatten)]
    one: OneArgs,

    /// How many
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    #[command(flatten)]
    one: OneArgs,

    /// When: minute, hour, day, month, weekday; with six fields, a second first
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,

    /// The time zone of these times
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,

    #[command(flatten)]
    body: Body,

    /// A header of each message, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<Header>,

    /// Which ticks are published that are more than a minute late: `none`, `last`, or how many of the last ones
    #[arg(long, value_name = "WHICH", default_value = "last", value_parser = parse::<CatchUp>)]
    catch_up: CatchUp,

    /// `skip`: no message while the group of the stream has not settled the one before
    #[arg(long, value_name = "WHAT", default_value = "allow", value_parser = parse::<Overlap>)]
    overlap: Overlap,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::List(args) => list(args, variables),
        Command::Add(args) => add(args, variables),
        Command::Remove(args) => change(args, variables, "removed", Store::remove),
        Command::Pause(args) => change(args, variables, "paused", Store::pause),
        Command::Resume(args) => change(args, variables, "resumed", Store::resume),
        Command::Run(args) => run_now(args, variables),
        Command::Next(args) => next(args, variables),
    }
}

/// Work on the schedules of the queue. Tries again while Redis is away.
fn with<T>(
    on: OfQueue,
    variables: Variables,
    work: impl AsyncFnOnce(&Session, &Store, &FoundQueue) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_queue(on, variables, "schedule", async |session, found| {
        if found.queue.is_at_most_once() {
            let what = "only streams and reliable lists have schedules";
            return Err(Failure::new(Exit::Usage, what));
        }
        let name = found.queue.name();
        let link = session.link("schedules").of(name);
        work(session, &Store::new(Arc::new(link), name), &found).await
    })
}

fn list(on: OfQueue, variables: Variables) -> Result<Exit, Failure> {
    let json = on.common.json;
    let all = with(on, variables, async |session, store, _| {
        session.retry(async || seen(store).await).await
    })?;
    output::either(json, &all, |all| match all.is_empty() {
        true => "the queue has no schedules".to_owned(),
        false => table(all),
    })
}

/// The schedules of a queue, for people.
pub(super) fn table(all: &[ScheduleSeen]) -> String {
    let titles = ["schedule", "cron", "zone", "next", "last", "missed", "from"];
    let rows = all.iter().map(|one| {
        let next = match (one.paused, one.next_ms.first()) {
            (true, _) => "paused".to_owned(),
            (false, next) => next.map_or_else(|| UNKNOWN.to_owned(), |next| time_to_seconds(*next)),
        };
        [
            one.name.clone(),
            one_line(&one.cron),
            one_line(&one.zone),
            next,
            or_dash(one.last_ms.map(time_to_seconds)),
            one.missed.to_string(),
            one_line(&one.source),
        ]
    });
    let mut text = output::titled(titles, rows);
    for one in all {
        let problem = one.problem.iter();
        text.extend(problem.map(|why| format!("\n{}: {}", one.name, one_line(why))));
    }
    text
}

/// The shape of `--json` after a change.
#[derive(Serialize)]
struct Told<'a> {
    schedule: &'a str,
    done: &'a str,
}

fn unknown(name: &str) -> Failure {
    let what = format!("the queue has no schedule `{}`", one_line(name));
    Failure::new(Exit::Usage, what).hint("`hostler schedule list` lists them")
}

fn change(
    args: OneArgs,
    variables: Variables,
    done: &'static str,
    how: impl AsyncFn(&Store, &str) -> Result<Changed, crate::redis::Error>,
) -> Result<Exit, Failure> {
    let (json, name) = (args.on.common.json, args.schedule);
    with(args.on, variables, async |session, store, _| {
        for _ in 0..TRIES {
            match session.retry(async || how(store, &name).await).await? {
                Changed::Done => return Ok(()),
                Changed::Unknown => return Err(unknown(&name)),
                Changed::Again => {}
            }
        }
        let what = format!("`{name}` changes all the time");
        Err(Failure::new(Exit::Unavailable, what))
    })?;
    let told = Told {
        schedule: &name,
        done,
    };
    output::either(json, &told, |told| {
        format!("{} {}", told.done, told.schedule)
    })
}

fn add(args: AddArgs, variables: Variables) -> Result<Exit, Failure> {
    let wrong = |what: String| Failure::new(Exit::Usage, what);
    let (json, name) = (args.one.on.common.json, args.one.schedule);
    check_name(&name).map_err(wrong)?;
    let timing = Timing::checked(&args.cron, &args.zone).map_err(|e| wrong(e.to_string()))?;
    let headers: BTreeMap<_, _> = args.headers.into_iter().collect();
    let HeaderTable(headers) = HeaderTable::new(headers).map_err(wrong)?;
    let body = args.body.read()?.unwrap_or_default();
    if body.len() > BODY_MAX {
        return Err(wrong(format!("the body has more than {BODY_MAX} bytes")));
    }
    let mut definition = Definition {
        cron: args.cron,
        zone: args.zone,
        headers,
        catch_up: args.catch_up.to_string(),
        ..Definition::default()
    };
    let (written, now_ms) = with(args.one.on, variables, async |session, store, found| {
        if args.overlap == Overlap::Skip {
            definition.skip_in = Some(group(&found.queue)?);
        }
        let defined = Defined::new(&name, definition, body, CLI);
        let written = session.retry(async || store.add(&defined).await).await?;
        let look = session.retry(async || store.look().await).await?;
        Ok((written, look.now_ms))
    })?;
    if written.is_full {
        return Err(wrong("the queue has too many schedules".to_owned()));
    }
    if !written.taken.is_empty() {
        let what = format!("a file has the schedule `{name}`");
        return Err(wrong(what).hint("change it there, or choose another name"));
    }
    let next = timing.after(now_ms);
    let told = Told {
        schedule: &name,
        done: "added",
    };
    output::either(json, &told, |told| {
        let next = next.map_or_else(|| UNKNOWN.to_owned(), |next| timing.local(next));
        format!("added {}: the next tick is {next}", told.schedule)
    })
}

/// The group that `overlap = "skip"` looks in.
fn group(queue: &QueueKind) -> Result<String, Failure> {
    match queue.place() {
        Place::Stream { group, .. } if !group.is_empty() => Ok(group.to_string()),
        Place::Stream { .. } => {
            let what = "`--overlap skip` looks in one group";
            Err(Failure::new(Exit::Usage, what).hint("name it with `--group`"))
        }
        _ => {
            let what = "`--overlap skip` needs a stream: a list has no group to look in";
            Err(Failure::new(Exit::Usage, what))
        }
    }
}

fn run_now(args: OneArgs, variables: Variables) -> Result<Exit, Failure> {
    let (json, name) = (args.on.common.json, args.schedule);
    let token = format!("{:032x}", fastrand::u128(..));
    let id = with(args.on, variables, async |session, store, _| {
        let asked = session
            .retry(async || store.run(&name, &token).await)
            .await?;
        let asked = asked.ok_or_else(|| unknown(&name))?;
        let begun = Instant::now();
        while begun.elapsed() < RUN_WITHIN {
            let (_, all) = session.retry(async || store.all().await).await?;
            let one = all.into_iter().find(|one| one.name == name);
            let record = one.ok_or_else(|| unknown(&name))?.record;
            if let Some(id) = record.run.filter(|(at, _)| *at == asked) {
                return Ok(Some(id.1));
            }
            sleep(ASK_EVERY).await;
        }
        Ok(None)
    })?;
    let Some(id) = id else {
        let what = format!("no host has published `{name}` yet");
        return Err(Failure::new(Exit::TimedOut, what)
            .hint("it is published as soon as a host serves the queue"));
    };
    let told = Told {
        schedule: &name,
        done: &id,
    };
    output::either(json, &told, |told| told.done.to_owned())
}

/// A tick, as `next --json` prints it.
#[derive(Serialize)]
struct Tick {
    at_ms: u64,
    at: String,
    local: String,
}

fn next(args: NextArgs, variables: Variables) -> Result<Exit, Failure> {
    let (json, name) = (args.one.on.common.json, args.one.schedule);
    let (now_ms, listed) = with(args.one.on, variables, async |session, store, _| {
        let (now_ms, all) = session.retry(async || store.all().await).await?;
        let one = all.into_iter().find(|one| one.name == name);
        Ok((now_ms, one.ok_or_else(|| unknown(&name))?))
    })?;
    let unreadable = || Failure::new(Exit::Usage, format!("`{name}` cannot be read here"));
    let known = listed.definition.ok_or_else(unreadable)?;
    let timing = known.timing();
    let timing = timing.map_err(|error| Failure::new(Exit::Usage, format!("`{name}`: {error}")))?;
    if listed.record.paused {
        output::warning(
            &format!("`{name}` is paused: it has no ticks until it is resumed"),
            None,
        );
    }
    let ticks = timing.all_after(now_ms).take(args.count.into());
    let ticks: Vec<Tick> = ticks
        .map(|tick| Tick {
            at_ms: tick,
            at: time_to_seconds(tick),
            local: timing.local(tick),
        })
        .collect();
    output::either(json, &ticks, |ticks| {
        output::table(
            ticks
                .iter()
                .map(|tick| [tick.at.clone(), tick.local.clone()]),
        )
    })
}
