//! Fills a stream of its own, and times the least that a consumer can do with it.
//!
//! ```text
//! bare URL [MESSAGES [BYTES]]       prints the messages per second, and the CPU time of this process for each in
//!                                   microseconds
//! bare URL serve KEY GROUP MESSAGES waits for messages that others write, and acknowledges each on its own, until it
//!                                   has had so many
//! ```

mod consume;

use std::error::Error;
use std::time::Instant;

use redis::streams::StreamReadReply;
use redis::{Client, RedisResult, cmd, pipe};

const GROUP: &str = "bare";
/// How many entries are written at once.
const WRITTEN: u64 = 1000;
/// A queue without a message for this long, in milliseconds, is an error.
const SILENT_FOR_MS: u64 = 10_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, messages, body) = match arguments[..] {
        [url, "serve", key, group, messages] => return serve(url, (key, group), messages.parse()?),
        [url] => (url, 100_000, 100),
        [url, messages] => (url, messages.parse()?, 100),
        [url, messages, body] => (url, messages.parse()?, body.parse()?),
        _ => {
            return Err(
                "usage: bare URL [MESSAGES [BYTES]], bare URL serve KEY GROUP MESSAGES".into(),
            );
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(url, messages, body))
}

/// The plainest consumer of messages that come one by one: one connection, and each command waits for its reply.
fn serve(url: &str, (key, group): (&str, &str), messages: u64) -> Outcome<()> {
    let mut link = Client::open(url)?.get_connection()?;
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP")
        .arg(group)
        .arg("bare")
        .arg("BLOCK")
        .arg(SILENT_FOR_MS);
    read.arg("STREAMS").arg(key).arg(">");
    let mut left = messages;
    while left > 0 {
        let reply: Option<StreamReadReply> = read.query(&mut link)?;
        let streams = reply.ok_or("no message comes")?.keys;
        for entry in streams.iter().flat_map(|stream| &stream.ids) {
            cmd("XACK")
                .arg(key)
                .arg(group)
                .arg(&entry.id)
                .exec(&mut link)?;
            left = left.saturating_sub(1);
        }
    }
    Ok(())
}

async fn measure(url: &str, messages: u64, body: usize) -> Outcome<()> {
    let client = Client::open(url)?;
    let key = format!("bare:{}", std::process::id());
    let filled = fill(&client, &key, messages, body).await;
    let measured = match filled {
        Ok(()) => drain(&client, &key, messages).await,
        Err(error) => Err(error.into()),
    };
    let mut link = client.get_multiplexed_async_connection().await?;
    cmd("UNLINK").arg(&key).exec_async(&mut link).await?;
    let (per_second, cpu_us) = measured?;
    println!("{per_second:.0} messages/s, {cpu_us:.2} us of CPU each");
    Ok(())
}

async fn fill(client: &Client, key: &str, messages: u64, body: usize) -> RedisResult<()> {
    let mut link = client.get_multiplexed_async_connection().await?;
    let body = vec![b'x'; body];
    let mut create = cmd("XGROUP");
    create
        .arg("CREATE")
        .arg(key)
        .arg(GROUP)
        .arg(0)
        .arg("MKSTREAM");
    create.exec_async(&mut link).await?;
    let mut left = messages;
    while left > 0 {
        let count = left.min(WRITTEN);
        let mut writes = pipe();
        for _ in 0..count {
            writes
                .cmd("XADD")
                .arg(key)
                .arg("*")
                .arg("_payload")
                .arg(&body);
        }
        writes.exec_async(&mut link).await?;
        left -= count;
    }
    Ok(())
}

/// Messages per second, and microseconds of CPU time for each.
async fn drain(client: &Client, key: &str, messages: u64) -> Outcome<(f64, f64)> {
    let mut reads = client.get_multiplexed_async_connection().await?;
    let mut acknowledgements = client.get_multiplexed_async_connection().await?;
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    let place = (key, GROUP);
    consume::consume(&mut reads, &mut acknowledgements, place, messages).await?;
    let (took, cpu) = (began.elapsed(), cpu_seconds()? - cpu);
    let all = messages as f64;
    Ok((all / took.as_secs_f64(), cpu * 1e6 / all))
}

/// Seconds of CPU time of this process: the scheduler's count, in nanoseconds.
fn cpu_seconds() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ran = text.split(' ').next().ok_or("no times in schedstat")?;
    Ok(ran.parse::<f64>()? / 1e9)
}
