//! `hostler publish`: one message, or a line of stdin each.

use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU64;
use std::thread;

use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::cli::connect::{Connected, Passing, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, ReachDestination};
use crate::cli::message::{Body, Header, headers};
use crate::cli::progress::Progress;
use crate::cli::{Variables, flags, output};
use crate::config::Destination;
use crate::delivery::message::Headers;
use crate::queue::publish::{self, Batch, Error, Incomplete, Outgoing, Publisher, Receipt};
use crate::wire::line::{self, Line};
use crate::wire::list::Codec;
use crate::wire::stream;

/// The longest line of `--lines`: what is longer is no line of text.
const LINE_MAX: u64 = 64 << 20;
/// How much of stdin is read ahead.
const STDIN_BUFFER: usize = 1 << 20;
/// How many messages that were read wait to be sent.
const WAITING_MAX: usize = 1024;

/// Publish a message, or one for each line of stdin
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the id of each message (of a stream), the length of the list, or the number of subscribers.

Examples:
  hostler publish --redis redis://localhost --stream orders --body '{\"id\":1,\"amount\":5}'
  hostler publish --redis redis://localhost --stream orders --body-file order.json --header tenant=acme
  hostler publish --redis redis://localhost --stream orders --lines --json < dead.jsonl
  seq 100000 | hostler publish --redis redis://localhost --stream numbers --lines --maxlen 1000000")]
pub(super) struct Args {
    #[command(flatten)]
    body: Body,

    /// Publish every line of stdin as a message of its own
    #[arg(long, conflicts_with_all = ["body", "body_file"])]
    lines: bool,

    /// A header of every message, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<Header>,

    /// Trim the stream to about this many entries: the oldest go, read or not
    #[arg(long, value_name = "N")]
    maxlen: Option<NonZeroU64>,

    /// How values of lists and channels are written
    #[arg(long, value_enum, default_value_t, value_name = "CODEC")]
    codec: Written,

    /// Print a line of JSON for each message; with `--lines`, the lines of stdin are JSON as well:
    /// {"body":"text","headers":{"name":"value"}}, or what `hostler dlq export` prints
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<ReachDestination>,
}

/// How values of lists and channels are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Written {
    /// Headers and body in a lossless binary frame
    #[default]
    Frame,
    /// Headers and body in a readable JSON envelope
    Json,
    /// The body alone; headers are refused
    Raw,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let loaded = args.flags.collect(variables).redis_and_destination()?;
    flags::warn(&loaded.warnings);
    let (redis, destination) = loaded.value;
    let destination = to(destination, args.maxlen, args.codec)?;
    let body = args.body.read()?;
    if body.is_none() && !args.lines {
        let hint = "give `--body TEXT`, `--body-file FILE` or `--lines`";
        return Err(Failure::new(Exit::Usage, "there is nothing to publish").hint(hint));
    }
    let headers = headers(&args.headers);
    ask(async {
        let connected = Connected::new(&redis, "publish").await?;
        let publisher = Publisher::new(&connected.connector, destination);
        // Before anything is sent: afterwards nobody would know what a lost reply said.
        let link = connected.connector.link("reach");
        patiently(redis.wait, async || link.reach().await).await?;
        let print = |receipts: &[Receipt]| print(receipts, args.json);
        let published = match body {
            Some(body) => {
                let receipt = publisher
                    .publish(&Outgoing {
                        body,
                        headers,
                        fields: None,
                    })
                    .await;
                receipt
                    .map_err(|error| refused(&error))
                    .and_then(|receipt| print(&[receipt]))
            }
            None => {
                let outgoing = move |line| outgoing(line, &headers, args.json);
                publish_lines(&publisher, outgoing, print).await
            }
        };
        connected.close().await;
        published.map(|()| Exit::Ok)
    })
}

fn to(
    destination: Destination,
    max_len: Option<NonZeroU64>,
    codec: Written,
) -> Result<publish::Destination, Failure> {
    let codec = match codec {
        Written::Frame => Codec::Frame,
        Written::Json => Codec::Json,
        Written::Raw => Codec::Raw,
    };
    if max_len.is_some() && !matches!(destination, Destination::Stream { .. }) {
        return Err(Failure::new(Exit::Usage, "`--maxlen` is for streams only"));
    }
    Ok(match destination {
        Destination::Stream { key, body_field } => publish::Destination::Stream {
            key,
            body_field: body_field.into(),
            max_len: max_len.map(NonZeroU64::get),
        },
        Destination::List { key } => publish::Destination::List { key, codec },
        Destination::Channel { name } => publish::Destination::Channel {
            name,
            codec,
            sharded: false,
        },
    })
}

/// Publish what a thread reads from stdin: thousands of lines per round trip where they come fast,
/// each at once where they come slowly.
async fn publish_lines(
    publisher: &Publisher,
    outgoing: impl Fn(Bytes) -> Result<Outgoing, String>,
    print: impl Fn(&[Receipt]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (sender, mut lines) = mpsc::channel(WAITING_MAX);
    thread::spawn(move || read_lines(&sender));
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
                let hint = "the lines before it are published; without `--json` lines are bodies";
                return Err(Failure::new(Exit::Usage, what).hint(hint));
            }
        };
        let receipts = batch.push(outgoing).await;
        told(receipts, &print, &progress)?;
        if lines.is_empty() {
            flush(&mut batch, &print, &progress).await?;
        }
    }
    flush(&mut batch, &print, &progress).await?;
    progress.finish();
    Ok(())
}

/// The message that a line of stdin stands for. Headers of flags come behind its own.
fn outgoing(line: Bytes, headers: &Headers, json: bool) -> Result<Outgoing, String> {
    if !json {
        return Ok(Outgoing {
            body: line,
            headers: headers.clone(),
            fields: None,
        });
    }
    let line = line::read(&line).map_err(|error| error.to_string())?;
    let added = headers.iter().cloned();
    Ok(match line {
        Line::Message(body, own) => Outgoing {
            body,
            headers: Headers::new(own.iter().cloned().chain(added).collect()),
            fields: None,
        },
        Line::Fields(mut fields) => {
            fields.extend(added.map(|(name, value)| stream::header_field(&name, value)));
            Outgoing {
                fields: Some(fields),
                ..Outgoing::default()
            }
        }
    })
}

async fn flush(
    batch: &mut Batch<'_>,
    print: &impl Fn(&[Receipt]) -> Result<(), Failure>,
    progress: &Progress,
) -> Result<(), Failure> {
    told(batch.flush().await, print, progress)
}

/// Print what was published, also where the rest was not.
fn told(
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
            let failure = refused(&incomplete.error);
            Err(Failure {
                what: incomplete.to_string(),
                ..failure
            })
        }
    }
}

fn read_lines(lines: &mpsc::Sender<Result<Bytes, Failure>>) {
    let mut stdin = BufReader::with_capacity(STDIN_BUFFER, std::io::stdin());
    loop {
        let line = match read_line(&mut stdin) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(failure) => Err(failure),
        };
        let ended = line.is_err();
        if lines.blocking_send(line).is_err() || ended {
            return;
        }
    }
}

/// The next line without its end; `None` = there is none.
fn read_line(reader: &mut impl BufRead) -> Result<Option<Bytes>, Failure> {
    let mut line = Vec::new();
    let read = reader
        .take(LINE_MAX + 1)
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::io("cannot read stdin", &error))?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if read as u64 > LINE_MAX {
        let what = format!("a line of stdin is longer than {LINE_MAX} bytes");
        return Err(Failure::new(Exit::Usage, what).hint("use `--body-file -` for one large body"));
    }
    Ok(Some(line.into()))
}

fn refused(error: &Error) -> Failure {
    match error {
        Error::Redis(error) => error.failure(),
        error => Failure::new(Exit::Usage, error),
    }
}

#[derive(Serialize)]
struct Published<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receivers: Option<u64>,
}

fn print(receipts: &[Receipt], json: bool) -> Result<(), Failure> {
    let mut text = String::new();
    for receipt in receipts {
        if json {
            let (id, length, receivers) = match receipt {
                Receipt::Entry(id) => (Some(id.as_str()), None, None),
                Receipt::Length(length) => (None, Some(*length), None),
                Receipt::Receivers(receivers) => (None, None, Some(*receivers)),
            };
            let published = Published {
                id,
                length,
                receivers,
            };
            let line = serde_json::to_string(&published);
            text.push_str(&line.map_err(|error| Failure::new(Exit::Bug, error))?);
        } else {
            text.push_str(&receipt.to_string());
        }
        text.push('\n');
    }
    output::data(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_people_end_them() {
        let mut input = &b"one\n\ntwo\r\nthree"[..];
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", "two", "three"]);
    }
}
