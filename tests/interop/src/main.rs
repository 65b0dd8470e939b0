//! A foreign peer: it publishes and reads with `ruststream-fred`, a line of JSON for each message.
//!
//! ```text
//! peer URL publish KIND KEY            stdin: {"body":[bytes],"headers":{"name":[bytes]}} per line
//! peer URL read KIND KEY COUNT ANSWER  stdout: "ready", then such a line for each; ANSWER: ack | requeue
//! ```
//!
//! Kinds: `stream`, `reclaim` (a stream's idle deliveries), `list`, `reliable`, `json` (a list of
//! readable envelopes), `channel`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::io::{BufRead, Write};
use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use ruststream::codec::JsonCodec;
use ruststream::{
    AckError, Broker, ConnectedBroker, HeaderMap, IncomingMessage, OutgoingMessage, Publisher,
    Subscriber,
};
use ruststream_fred::{
    ConnectedRedisBroker, RedisBroker, RedisList, RedisListPublish, RedisPubSub,
    RedisPubSubPublish, RedisStream, StreamStart,
};
use serde::{Deserialize, Serialize};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Deserialize, Serialize)]
struct Message {
    body: Vec<u8>,
    headers: BTreeMap<String, Vec<u8>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [url, "publish", kind, key] => {
            let broker = RedisBroker::standalone(url).connect().await?;
            for line in std::io::stdin().lock().lines() {
                publish(&broker, kind, key, serde_json::from_str(&line?)?).await?;
            }
            broker.shutdown().await?;
        }
        [url, "read", kind, key, count, answer] => {
            let broker = RedisBroker::standalone(url).connect().await?;
            read(&broker, kind, key, count.parse()?, answer).await?;
        }
        _ => return Err("see the top of its source".into()),
    }
    Ok(())
}

async fn publish(
    broker: &ConnectedRedisBroker,
    kind: &str,
    key: &str,
    message: Message,
) -> Outcome<()> {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers {
        headers.insert(name, value);
    }
    let body = &message.body[..];
    match kind {
        "stream" => {
            let outgoing = OutgoingMessage::new(key, body).with_headers(headers);
            broker.publisher().publish(outgoing, None).await?
        }
        "list" => {
            let outgoing = OutgoingMessage::new(key, body).with_headers(headers);
            let publisher = broker.list_publisher(RedisListPublish::new());
            publisher.publish(outgoing, None).await?
        }
        "json" => {
            let outgoing = OutgoingMessage::new(key, body).with_headers(headers);
            let publisher = broker.list_publisher(RedisListPublish::new().codec(JsonCodec));
            publisher.publish(outgoing, None).await?
        }
        "channel" => {
            let outgoing = OutgoingMessage::new(key, body).with_headers(headers);
            let publisher = broker.pubsub_publisher(RedisPubSubPublish::new());
            publisher.publish(outgoing, None).await?
        }
        other => return Err(format!("nothing is published to a {other}").into()),
    };
    Ok(())
}

async fn read(
    broker: &ConnectedRedisBroker,
    kind: &str,
    key: &str,
    count: usize,
    answer: &str,
) -> Outcome<()> {
    match kind {
        "stream" => {
            let stream = RedisStream::new(key).group("workers");
            let stream = stream.start_id(StreamStart::Beginning);
            print(broker.subscribe(stream).await?.stream(), count, answer).await
        }
        "reclaim" => {
            let stream = RedisStream::reclaim(key, Duration::from_millis(50)).group("workers");
            print(broker.subscribe(stream).await?.stream(), count, answer).await
        }
        "channel" => {
            let channel = RedisPubSub::new(key);
            let mut subscriber = broker.subscribe_pubsub(channel).await?;
            print(subscriber.stream(), count, answer).await
        }
        _ => {
            let list = match kind {
                "reliable" => RedisList::new(key).reliable(),
                "json" => RedisList::new(key).codec(JsonCodec),
                _ => RedisList::new(key),
            };
            let mut subscriber = broker.subscribe_list(list).await?;
            print(subscriber.stream(), count, answer).await
        }
    }
}

async fn print<M: IncomingMessage, E: Debug>(
    deliveries: impl Stream<Item = Result<M, E>>,
    count: usize,
    answer: &str,
) -> Outcome<()> {
    say("ready")?;
    let mut deliveries = pin!(deliveries);
    for _ in 0..count {
        let next = deliveries.next().await.ok_or("no more")?;
        let delivery = next.map_err(|error| format!("{error:?}"))?;
        let headers = delivery.headers().iter();
        let message = Message {
            body: delivery.payload().to_vec(),
            headers: headers.map(|(n, v)| (n.to_owned(), v.to_vec())).collect(),
        };
        let line = serde_json::to_string(&message)?;
        let settled = match answer {
            "requeue" => delivery.nack(true).await,
            _ => delivery.ack().await,
        };
        match settled {
            // A channel, or a simple list: there is nothing to settle.
            Ok(()) | Err(AckError::Unsupported) => {}
            Err(error) => return Err(format!("{error:?}").into()),
        }
        // Said when it is settled.
        say(&line)?;
    }
    Ok(())
}

fn say(line: &str) -> Outcome<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    Ok(())
}
