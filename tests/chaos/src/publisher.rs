//! The publisher: a constant rate, and a record of each message: confirmed, refused, or unknown.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::history::{Kind, Published, Sent};
use crate::script::Script;
use crate::wire;

/// How long the publisher waits for an answer. Then the outcome is unknown.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a chunk of [`fill`] may take.
const FILLS: Duration = Duration::from_secs(30);
/// How many ticks there are in a second: each publishes its share.
const TICKS: u32 = 20;

/// The key of every queue.
pub const QUEUE: &str = "orders";

/// Publish these scripts, `rate` in a second, numbered from `first`. The result of each is sent on, in order.
pub async fn publish(
    url: String,
    kind: Kind,
    first: u32,
    scripts: Vec<Script>,
    rate: u32,
    begun: Instant,
    done: mpsc::Sender<Vec<Sent>>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / TICKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let share = (rate / TICKS).max(1) as usize;
    let mut connection: Option<MultiplexedConnection> = None;
    let mut number = first;
    for scripts in scripts.chunks(share) {
        // Nothing is sent before there is a connection: nothing can be lost.
        let open = loop {
            ticks.tick().await;
            match connection.take() {
                Some(open) => break open,
                None => connection = connect(&url).await,
            }
        };
        let at_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let asked = scripts
            .iter()
            .zip(number..)
            .map(|(script, number)| ask(open.clone(), command(kind, number, script)));
        let outcomes = join_all(asked).await;
        number += u32::try_from(scripts.len()).unwrap_or(0);
        if !outcomes.contains(&Published::Unknown) {
            connection = Some(open);
        }
        let sent = scripts
            .iter()
            .zip(outcomes)
            .map(|(script, published)| Sent {
                script: script.clone(),
                at_ms,
                published,
            });
        if done.send(sent.collect()).await.is_err() {
            return;
        }
    }
}

/// Where [`fill`] puts messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum To {
    /// Into the queue.
    Queue,
    /// Beside it, until this time, in milliseconds since 1970.
    Delayed(u64),
}

/// How many messages one call of the script below writes.
const CHUNK: u32 = 5_000;

/// Writes messages with the numbers ARGV 2 to 3 and the body ARGV 1, by the way of ARGV 4; those that are delayed
/// are due at ARGV 5.
const FILL: &str = r"
local body, way, due = ARGV[1], ARGV[4], ARGV[5]
local function text(s) return struct.pack('>I4', #s) .. s end
for n = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local id = 'm' .. n
  if way == 'stream' then
    redis.call('XADD', KEYS[1], '*', '_payload', body, 'h:x-message-id', id)
  elseif way == 'list' then
    redis.call('LPUSH', KEYS[1], struct.pack('>I4', 1) .. text('x-message-id') .. text(id) .. body)
  else
    local message
    if way == 'delayed stream' then
      message = struct.pack('>I4', 2) .. text('_payload') .. text(body) .. text('h:x-message-id') .. text(id)
    else
      message = struct.pack('>I4', 1) .. text('x-message-id') .. text(id) .. body
    end
    redis.call('ZADD', KEYS[1], due, string.format('%016d', n) .. message)
  end
end";

/// Put `messages` messages with the same body where the hosts find them, numbered from 0: the server writes them
/// itself. It is well.
///
/// # Errors
/// The server refuses something.
pub async fn fill(
    url: String,
    kind: Kind,
    to: To,
    messages: u32,
    body: Vec<u8>,
) -> redis::RedisResult<()> {
    let client = Client::open(url)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(FILLS));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let (way, key, due) = match (kind, to) {
        (Kind::Stream, To::Queue) => ("stream", QUEUE.to_owned(), 0),
        (_, To::Queue) => ("list", QUEUE.to_owned(), 0),
        (Kind::Stream, To::Delayed(due)) => ("delayed stream", format!("{{{QUEUE}}}:delayed"), due),
        (_, To::Delayed(due)) => ("delayed list", format!("{{{QUEUE}}}:delayed"), due),
    };
    let mut first = 0;
    while first < messages {
        let next = messages.min(first + CHUNK);
        redis::cmd("EVAL")
            .arg(FILL)
            .arg(1)
            .arg(&key)
            .arg(&body)
            .arg(first)
            .arg(next - 1)
            .arg(way)
            .arg(due)
            .exec_async(&mut connection)
            .await?;
        first = next;
    }
    Ok(())
}

async fn connect(url: &str) -> Option<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let client = Client::open(url).ok()?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .ok()
}

fn command(kind: Kind, number: u32, script: &Script) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    match kind {
        Kind::Stream => {
            command.arg("XADD").arg(QUEUE).arg("*");
            command.arg("_payload").arg(script.body());
            for (name, value) in wire::headers(number, script) {
                command.arg(format!("h:{name}")).arg(value);
            }
        }
        Kind::List | Kind::SimpleList => {
            command
                .arg("LPUSH")
                .arg(QUEUE)
                .arg(&wire::framed(number, script)[..]);
        }
        Kind::Channel => {
            command
                .arg("PUBLISH")
                .arg(QUEUE)
                .arg(&wire::framed(number, script)[..]);
        }
    }
    command
}

async fn ask(mut connection: MultiplexedConnection, command: redis::Cmd) -> Published {
    match command.query_async::<redis::Value>(&mut connection).await {
        Ok(_) => Published::Ok,
        Err(error) if is_refusal(&error) => Published::Failed,
        Err(_) => Published::Unknown,
    }
}

/// Whether the server has answered that it did not do it.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_))
        || (error.kind() == ErrorKind::Extension && error.code().is_some())
}
