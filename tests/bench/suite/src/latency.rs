//! The time from publish to acknowledgement, at a steady rate.
//!
//! The schedule is open: a message is due at its time, whether or not the ones before it are handled, and its time
//! counts from then. So a consumer that stands still is not spared the messages that would have come meanwhile. Redis
//! says when it has acknowledged a message: `MONITOR` prints the time of each command by the clock of this machine.
//! It costs the server the same for all consumers, and nothing asks the server in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::drain::Kind;
use crate::process::Program;
use crate::report::{Report, Target, percentile, table};
use crate::server::{GROUP, QUEUE, Server};
use crate::{Outcome, Setup, fail, plot};

/// Messages per second, for how many seconds of each round, and how much later than the plain loop the median of a host may
/// be, in milliseconds. At the lower rate the threads of a host sleep between two messages.
const RATES: [(u64, u64, f64); 2] = [(100, 30, 0.4), (1000, 15, 0.1)];
const ROUNDS: usize = 2;
const CONSUMERS: [&str; 3] = ["bare", "hostler, fresh", "hostler, reuse"];
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];
/// The same for the 99th percentile, at all rates.
const P99_MORE: f64 = 0.5;
/// Between the start of the schedule and its first message.
const AHEAD: Duration = Duration::from_millis(100);
/// A wait for an acknowledgement that is longer has failed.
const SILENT_FOR: Duration = Duration::from_secs(10);

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let mut text = String::new();
    let (mut raw, mut plots) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    for (rate, seconds, p50_more) in RATES {
        let seconds = setup.seconds(seconds);
        let mut samples = CONSUMERS.map(|_| Vec::new());
        for round in 0..setup.rounds(ROUNDS) {
            for turn in 0..CONSUMERS.len() {
                let consumer = (round + turn) % CONSUMERS.len();
                eprintln!("   {rate} messages/s: {}", CONSUMERS[consumer]);
                samples[consumer].extend(sample(setup, consumer, rate, rate * seconds)?);
            }
        }
        for samples in &mut samples {
            samples.sort_by(f64::total_cmp);
        }
        let figures = samples
            .each_ref()
            .map(|samples| SHARES.map(|share| percentile(samples, share)));
        for (consumer, [p50, p99, p999]) in figures.into_iter().enumerate() {
            let more = |share: usize, bound: f64| {
                let more = figures[consumer][share] - figures[0][share];
                match consumer {
                    0 => "-".to_owned(),
                    _ => format!("{more:+.2} ms, {}", Target::AtMost(bound).judge(more)),
                }
            };
            rows.push([
                rate.to_string(),
                CONSUMERS[consumer].to_owned(),
                format!("{p50:.2}"),
                format!("{p99:.2}"),
                format!("{p999:.2}"),
                more(0, p50_more),
                more(1, P99_MORE),
            ]);
            raw.push(json!({
                "rate": rate,
                "consumer": CONSUMERS[consumer],
                "samples": samples[consumer].len(),
                "p50_ms": p50, "p99_ms": p99, "p999_ms": p999,
                // Each hundredth, for other pictures than ours.
                "percentiles_ms": (0..=100).map(|n| percentile(&samples[consumer], f64::from(n) / 100.0)).collect::<Vec<_>>(),
            }));
        }
        let title = format!("Publish to acknowledgement at {rate} messages/s, ms");
        let groups: Vec<_> = CONSUMERS
            .iter()
            .zip(figures)
            .map(|(name, ms)| ((*name).to_owned(), ms.to_vec()))
            .collect();
        let name = if rate == 100 {
            "latency-100"
        } else {
            "latency-1000"
        };
        plots
            .extend(plot::groups(&title, &["p50", "p99", "p99.9"], &groups).map(|svg| (name, svg)));
    }
    let names = [
        "messages/s",
        "consumer",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "p50 more than bare",
        "p99 more than bare",
    ];
    text.push_str(&table(2, names, &rows));
    Ok(Report {
        raw: Value::Array(raw),
        text,
        plots,
    })
}

/// Milliseconds from the due time of each message to its acknowledgement, but for those of the first second.
fn sample(setup: &Setup, consumer: usize, rate: u64, messages: u64) -> Outcome<Vec<f64>> {
    let mut server = Server::start(setup.folder(), None)?;
    server.create_stream()?;
    let url = server.url();
    let program = match consumer {
        0 => Program::new(&setup.bare).words(&format!("{url} serve {QUEUE} {GROUP} {messages}")),
        _ => setup.host(&url, Kind::Stream, "ack", consumer == 2),
    };
    let mut consumers = [program.start(setup.folder())?];
    server.wait_for(&mut consumers)?;
    let monitor = monitor(server.address())?;
    let deadline = Instant::now() + AHEAD + Duration::from_secs(messages / rate) + SILENT_FOR;
    let acknowledged = std::thread::scope(|scope| {
        let acknowledged = scope.spawn(|| {
            acknowledgements(monitor, messages, deadline).map_err(|error| error.to_string())
        });
        let start = SystemTime::now() + AHEAD;
        let sent = send(server.address(), start, rate, messages);
        let acknowledged = acknowledged
            .join()
            .map_err(|_| "the monitor's thread panicked")??;
        sent?;
        let began = start.duration_since(UNIX_EPOCH)?.as_secs_f64();
        let late = acknowledged
            .iter()
            .enumerate()
            .map(|(n, at)| (at - began - n as f64 / rate as f64) * 1e3);
        let warm = rate.min(messages / 2) as usize;
        Outcome::Ok(late.skip(warm).collect())
    })?;
    Ok(acknowledged)
}

/// Publish on schedule, without waiting for replies. The id of message `n` ends in `-n`.
fn send(address: (&str, u16), start: SystemTime, rate: u64, messages: u64) -> Outcome<()> {
    let mut link = TcpStream::connect(address)?;
    link.set_nodelay(true)?;
    link.set_read_timeout(Some(SILENT_FOR))?;
    let replies = BufReader::new(link.try_clone()?);
    let replies = std::thread::spawn(move || no_errors(replies, messages));
    let body = "x".repeat(100);
    for n in 0..messages {
        let due = start + Duration::from_secs_f64(n as f64 / rate as f64);
        if let Ok(wait) = due.duration_since(SystemTime::now()) {
            std::thread::sleep(wait);
        }
        let id = format!("{}-{n}", due.duration_since(UNIX_EPOCH)?.as_millis());
        let mut command = b"*5\r\n".to_vec();
        for word in ["XADD", QUEUE, &id, "_payload", &body] {
            command.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        link.write_all(&command)?;
    }
    replies
        .join()
        .map_err(|_| "the thread of replies panicked")??;
    Ok(())
}

/// Read the replies, two lines each: an error has one.
fn no_errors(mut replies: impl BufRead, messages: u64) -> Result<(), String> {
    for _ in 0..messages * 2 {
        let mut line = String::new();
        replies
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        if line.starts_with('-') {
            return Err(format!("XADD: {line}"));
        }
    }
    Ok(())
}

/// What the server carries out from now on, one line for each command.
pub fn monitor(address: (&str, u16)) -> Outcome<BufReader<TcpStream>> {
    let mut link = TcpStream::connect(address)?;
    link.set_read_timeout(Some(SILENT_FOR))?;
    link.write_all(b"MONITOR\r\n")?;
    let mut answer = [0; 5];
    link.read_exact(&mut answer)?;
    match &answer {
        b"+OK\r\n" => Ok(BufReader::new(link)),
        _ => fail("MONITOR is refused"),
    }
}

/// When each message was acknowledged first, in seconds since 1970.
fn acknowledgements(monitor: impl BufRead, messages: u64, deadline: Instant) -> Outcome<Vec<f64>> {
    let mut found = vec![None; usize::try_from(messages)?];
    let mut left = messages;
    for line in monitor.lines() {
        let line = line?;
        for (n, at) in acknowledged(&line) {
            let place = found.get_mut(n).ok_or("an acknowledgement of nothing")?;
            if place.is_none() {
                *place = Some(at);
                left -= 1;
            }
        }
        if left == 0 {
            return Ok(found.into_iter().flatten().collect());
        }
        // A host asks Redis now and then, so the monitor is never silent for long.
        if Instant::now() > deadline {
            break;
        }
    }
    fail(format!("{left} messages were not acknowledged"))
}

/// The messages that a line of `MONITOR` acknowledges, and its time.
fn acknowledged(line: &str) -> Vec<(usize, f64)> {
    // 1700000000.000000 [0 127.0.0.1:1] "XACK" "orders" "g" "1700000000000-7"
    let mut words = line.split('"');
    let time = words
        .next()
        .and_then(|head| head.split(' ').next()?.parse::<f64>().ok());
    let words: Vec<&str> = words.step_by(2).collect();
    match (time, &words[..]) {
        (Some(time), [command, _, _, ids @ ..]) if command.eq_ignore_ascii_case("XACK") => {
            let number = |id: &&str| id.split_once('-')?.1.parse().ok();
            ids.iter().filter_map(number).map(|n| (n, time)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_monitor_names_what_it_acknowledges() {
        let line = r#"1700000000.250000 [0 127.0.0.1:1] "XACK" "orders" "g" "1700000000000-7" "1700000000001-8""#;
        assert_eq!(
            acknowledged(line),
            [(7, 1_700_000_000.25), (8, 1_700_000_000.25)]
        );
        let of_a_script = r#"1700000000.250000 [0 lua] "XACK" "orders" "g" "1700000000000-7""#;
        assert_eq!(acknowledged(of_a_script).len(), 1);
        assert!(
            acknowledged(r#"1700000000.250000 [0 127.0.0.1:1] "XADD" "orders" "1-7" "a" "b""#)
                .is_empty()
        );
    }
}
