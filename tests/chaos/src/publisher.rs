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
/// How many ticks there are in a second: each publishes its share.
const TICKS: u32 = 20;

/// The key of every queue.
pub const QUEUE: &str = "orders";

/// Publish these scripts, so many in a second. What became of each is sent on, in order.
pub async fn publish(
    url: String,
    kind: Kind,
    scripts: Vec<Script>,
    rate: u32,
    begun: Instant,
    done: mpsc::Sender<Vec<Sent>>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / TICKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let share = (rate / TICKS).max(1) as usize;
    let mut connection: Option<MultiplexedConnection> = None;
    let mut number = 0;
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

/// Publish these scripts at once; the server is well.
///
/// # Errors
/// The server refuses something.
pub async fn publish_all(url: &str, kind: Kind, scripts: &[Script]) -> redis::RedisResult<()> {
    let mut connection = Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let mut number = 0;
    for scripts in scripts.chunks(1_000) {
        let mut pipeline = redis::pipe();
        for script in scripts {
            pipeline.add_command(command(kind, number, script)).ignore();
            number += 1;
        }
        pipeline.exec_async(&mut connection).await?;
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
