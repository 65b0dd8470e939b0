//! `hostler publish`: one message, or one per line of stdin.

use std::num::{NonZeroU32, NonZeroU64};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli::flags::{Flags, ReachDestination};
use crate::cli::message::{Body, Header, header};
use crate::cli::parts::check_parted;
use crate::cli::progress::Progress;
use crate::cli::text::parse;
use crate::cli::{Exit, Failure, Variables, ask_at, named, output};
use crate::config::Collected;
use crate::delivery::message::Headers;
use crate::publish::{Batch, Codec, Destination, Inbox, Incomplete, Outgoing, Publisher, Receipt};
use crate::wire::line::{self, Line};
use crate::wire::parts;
use crate::wire::stream;
use crate::workbench::message;

mod lines;
mod wait;

/// How many lines may wait to be sent.
const WAITING_MAX: usize = 1024;

/// Publish a message, or one for each line of stdin
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the id of each message (of a stream, or with a delay), the length of the
list, or the number of subscribers.

Examples:
  hostler publish --redis redis://localhost --queue orders --body hello
  hostler publish --redis redis://localhost --stream orders \\
    --body '{\"id\":1,\"amount\":5}'
  hostler publish --redis redis://localhost --stream orders \\
    --body-file order.json --header tenant=acme
  hostler publish --redis redis://localhost --stream orders \\
    --lines --json < dead.jsonl
  hostler publish --redis redis://localhost --stream orders \\
    --body reminder --delay 1h
  hostler publish --redis redis://localhost --stream orders \\
    --body hello --wait 30s
  hostler publish --redis redis+cluster://n1,n2 --stream orders \\
    --key customer-7 --parts 16 --body hello
  hostler publish --redis redis://localhost --list jobs --codec json \\
    --body hello --ttl 300s
  seq 100000 | hostler publish --redis redis://localhost --stream numbers \\
    --lines --maxlen 1000000")]
pub(super) struct Args {
    #[command(flatten)]
    body: Body,

    /// Publish every line of stdin as a message
    #[arg(long, conflicts_with_all = ["body", "body_file"])]
    lines: bool,

    /// A header of every message, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<Header>,

    /// Deliver the message after this time; for a stream, or a list that hosts read with `--reliable`
    ///
    /// A running host then adds it to the queue.
    #[arg(long, value_name = "DURATION", value_parser = parse::<Duration>)]
    delay: Option<Duration>,

    /// Dead-letter the message as `expired`, if no handler has started it within this time
    #[arg(long, value_name = "DURATION", value_parser = parse::<Duration>)]
    expires_in: Option<Duration>,

    /// Wait so long for what becomes of the message, and print the reply of its handler
    ///
    /// The exit code is 0 if its handler acknowledged it, 11 if it was dropped, 12 if it was given up for another reason, 75 if
    /// the time is over: it may be handled later. On streams, and on lists that hosts read with `--reliable`.
    #[arg(long, value_name = "DURATION", value_parser = parse::<Duration>, conflicts_with = "lines")]
    wait: Option<Duration>,

    /// Wait for this consumer group of the stream, not for the first that settles the message
    #[arg(long, value_name = "GROUP", requires = "wait")]
    group: Option<String>,

    /// Print a line of JSON for each message; with `--lines`, read lines of JSON
    ///
    /// The lines are {"body":"text","headers":{"name":"value"}}, or the output of `hostler dlq export`.
    #[arg(long)]
    json: bool,

    /// Publish to the queue with this key: hosts say what it is
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    #[command(flatten)]
    part: InPart,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    flags: Flags<ReachDestination>,
}

/// The part of a queue that is served in parts.
#[derive(Debug, clap::Args)]
struct InPart {
    /// Publish to the part of the queue for messages with this key
    ///
    /// Messages with the same key go to the same part: `orders` in 16 parts is `{orders:0}` to `{orders:15}`.
    #[arg(long, value_name = "KEY", requires = "parts")]
    key: Option<String>,

    /// How many parts the queue has
    #[arg(long, value_name = "N", value_parser = parse::<NonZeroU32>, requires = "key")]
    parts: Option<NonZeroU32>,
}

impl InPart {
    /// The destination, or the part of it.
    fn of(&self, mut destination: Destination) -> Result<Destination, Failure> {
        let (Some(key), Some(parts)) = (&self.key, self.parts) else {
            return Ok(destination);
        };
        let name = match &mut destination {
            Destination::Stream(stream) => &mut stream.key,
            Destination::List(list) => &mut list.key,
            Destination::Channel(channel) => &mut channel.name,
        };
        check_parted(name)?;
        *name = parts::part(name, parts::part_of(key.as_bytes(), parts));
        Ok(destination)
    }
}

/// How messages are written to their destination.
#[derive(Debug, clap::Args)]
struct Writing {
    /// Trim the stream to about this many entries: the oldest are deleted, read or unread
    #[arg(long, value_name = "N", value_parser = parse::<NonZeroU64>)]
    maxlen: Option<NonZeroU64>,

    /// Delete the whole list this long after the last message with `--ttl`
    ///
    /// Nothing of it is dead-lettered.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    ttl: Option<Duration>,

    /// How values of lists and channels are written
    ///
    /// By default as the hosts of the configuration read them; without a configuration, frames.
    #[arg(long, value_enum, value_name = "CODEC")]
    codec: Option<Written>,
}

/// How values of lists and channels are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Written {
    /// Headers and body in a lossless binary frame
    Frame,
    /// Headers and body in a readable JSON envelope
    Json,
    /// Only the body; headers are refused
    Raw,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let flags = match &args.queue {
        Some(name) => named::destination(args.flags, &variables, name)?,
        None => args.flags,
    };
    let (redis, destination) = flags.load(variables, Collected::redis_and_destination)?;
    let destination = args.writing.to(args.part.of(destination)?)?;
    if args.delay.is_some_and(|delay| !delay.is_zero())
        && let Err(error) = destination.takes_delays()
    {
        let failure = Failure::from(error);
        return Err(match destination {
            Destination::List(_) => failure.hint("give `--reliable` if hosts read the list so"),
            _ => failure,
        });
    }
    let body = args.body.read()?;
    if body.is_none() && !args.lines {
        let hint = "give `--body TEXT`, `--body-file FILE` or `--lines`";
        return Err(Failure::new(Exit::Usage, "there is nothing to publish").hint(hint));
    }
    let headers = message::headers(args.headers);
    ask_at(&redis, "publish", async |session| {
        let every = Outgoing {
            headers,
            delay: args.delay,
            expires_in: args.expires_in,
            ..Outgoing::default()
        };
        if let (Some(within), Some(body)) = (args.wait, &body) {
            let message = Outgoing {
                body: body.clone(),
                ..every
            };
            let inbox = Inbox::new(&session.connector, destination, args.group.as_deref())?;
            session
                .retry(async || inbox.publisher().reach().await)
                .await?;
            return wait::show(inbox.ask(&message, within).await, args.json);
        }
        let publisher = Publisher::new(&session.connector, destination);
        // Retried only before anything is sent: a lost reply does not say whether Redis has the
        // message.
        session.retry(async || publisher.reach().await).await?;
        let print = |receipts: &[Receipt]| print(receipts, args.json);
        match body {
            Some(body) => {
                let receipt = publisher.publish(&Outgoing { body, ..every }).await?;
                print(&[receipt])?;
            }
            None => {
                let outgoing = move |line| outgoing(line, &every, args.json);
                publish_lines(&publisher, outgoing, print).await?;
            }
        }
        Ok(Exit::Ok)
    })
}

impl Writing {
    /// The destination of the settings, with these flags.
    fn to(&self, mut destination: Destination) -> Result<Destination, Failure> {
        let codec = self.codec.map(|written| match written {
            Written::Frame => Codec::Frame,
            Written::Json => Codec::Json,
            Written::Raw => Codec::Raw,
        });
        match &mut destination {
            Destination::Stream(stream) => stream.max_len = self.maxlen.map(NonZeroU64::get),
            Destination::List(list) => {
                list.ttl = self.ttl;
                list.codec = codec.unwrap_or(list.codec);
            }
            Destination::Channel(channel) => channel.codec = codec.unwrap_or(channel.codec),
        }
        let what = if self.maxlen.is_some() && !matches!(destination, Destination::Stream(_)) {
            "`--maxlen` is for streams only"
        } else if self.ttl.is_some() && !matches!(destination, Destination::List(_)) {
            "`--ttl` is for lists only: entries of a stream can expire (`--expires-in`), and a channel keeps nothing"
        } else {
            return Ok(destination);
        };
        Err(Failure::new(Exit::Usage, what))
    }
}

/// A time to live, which is not zero.
fn lifetime(text: &str) -> Result<Duration, String> {
    match parse(text) {
        Ok(Duration::ZERO) => Err("a list must live longer than 0s".to_owned()),
        parsed => parsed,
    }
}

/// Publish the lines that a thread reads from stdin: thousands per round trip where they come fast,
/// each line at once where they come slowly.
async fn publish_lines(
    publisher: &Publisher,
    outgoing: impl Fn(Bytes) -> Result<Outgoing, String>,
    print: impl Fn(&[Receipt]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (sender, mut lines) = mpsc::channel(WAITING_MAX);
    thread::spawn(move || lines::read_lines(&sender));
    let progress = Progress::counting("published");
    let mut batch = publisher.batch();
    let mut number = 0_u64;
    while let Some(line) = lines.recv().await {
        number += 1;
        let outgoing = match outgoing(line?) {
            Ok(outgoing) => outgoing,
            Err(what) => {
                flush(&mut batch, &print, &progress).await?;
                let what = format!("line {number} of stdin is {what}");
                let hint =
                    "the lines before it are published; without `--json`, each line is a body";
                return Err(Failure::new(Exit::Usage, what).hint(hint));
            }
        };
        let receipts = batch.push(outgoing).await;
        print_receipts(receipts, &print, &progress)?;
        if lines.is_empty() {
            flush(&mut batch, &print, &progress).await?;
        }
    }
    flush(&mut batch, &print, &progress).await?;
    progress.finish();
    Ok(())
}

/// The message of a line of stdin; the headers of `every` message come after its own.
fn outgoing(line: Bytes, every: &Outgoing, json: bool) -> Result<Outgoing, String> {
    if !json {
        return Ok(Outgoing {
            body: line,
            ..every.clone()
        });
    }
    let line = line::read(&line).map_err(|error| error.to_string())?;
    let added = every.headers.iter().cloned();
    Ok(match line {
        Line::Message(body, own) => Outgoing {
            body,
            headers: Headers::new(own.iter().cloned().chain(added).collect()),
            ..every.clone()
        },
        Line::Fields(mut fields) => {
            fields.extend(added.map(|(name, value)| stream::header_field(&name, value)));
            Outgoing {
                fields: Some(fields),
                headers: Headers::default(),
                ..every.clone()
            }
        }
    })
}

async fn flush(
    batch: &mut Batch<'_>,
    print: &impl Fn(&[Receipt]) -> Result<(), Failure>,
    progress: &Progress,
) -> Result<(), Failure> {
    print_receipts(batch.flush().await, print, progress)
}

/// Print the receipts, also of a batch of which only a part was published.
fn print_receipts(
    receipts: Result<Vec<Receipt>, Incomplete>,
    print: &impl Fn(&[Receipt]) -> Result<(), Failure>,
    progress: &Progress,
) -> Result<(), Failure> {
    match receipts {
        Ok(receipts) => {
            progress.advance(receipts.len() as u64);
            print(&receipts)
        }
        Err(incomplete) => {
            print(&incomplete.receipts)?;
            Err(Failure {
                what: incomplete.to_string(),
                ..incomplete.error.into()
            })
        }
    }
}

fn json_of(receipt: &Receipt) -> serde_json::Value {
    match receipt {
        Receipt::Entry(id) => json!({ "id": id }),
        Receipt::Length(length) => json!({ "length": length }),
        Receipt::Receivers(receivers) => json!({ "receivers": receivers }),
        Receipt::Scheduled { id, due_ms } => json!({ "id": id, "due_ms": due_ms }),
    }
}

fn print(receipts: &[Receipt], json: bool) -> Result<(), Failure> {
    let line = |receipt: &Receipt| match json {
        true => format!("{}\n", json_of(receipt)),
        false => format!("{receipt}\n"),
    };
    output::data(receipts.iter().map(line).collect::<String>().as_bytes())
}
