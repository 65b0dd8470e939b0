//! Calls of scripts about many deliveries, several calls in one round trip.
//!
//! - `copy`: how a copy of a message is written.
//! - `words`: what a script answers about each delivery.

use redis::{Arg, Cmd, Value};

use crate::calls::words::{incomplete, word_reply};
use crate::delivery::ledger::Reply;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{PER_CALL, Script};

pub(crate) mod copy;
pub(crate) mod words;

/// About how many bytes of values are in one call.
const BYTES_PER_CALL: usize = 1 << 20;
/// Most calls in one round trip, and about how many bytes of them. A call that is larger goes alone: Redis
/// may refuse it by hanging up, and none but this one is in doubt then.
pub(crate) const PER_PIPELINE: usize = 8;
const BYTES_PER_PIPELINE: usize = 1 << 20;

/// One reply for each delivery, until all are known.
pub(crate) type Replies = Vec<Option<Reply>>;

/// A call, and the places of its deliveries.
pub(crate) type Batch = (Cmd, Vec<usize>);

/// Every place of these deliveries.
pub(crate) fn all_of<T>(deliveries: &[T]) -> Vec<usize> {
    (0..deliveries.len()).collect()
}

/// Calls about these places: `size` is the bytes of values of one, `call` makes a call about some.
pub(crate) fn batches(
    places: &[usize],
    size: impl Fn(usize) -> usize,
    call: impl Fn(&[usize]) -> Cmd,
) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut rest = places;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take(PER_CALL).take_while(|&&place| {
            let first = bytes == 0;
            bytes += size(place) + 1;
            first || bytes <= BYTES_PER_CALL
        });
        let (batch, behind) = rest.split_at(fitting.count());
        batches.push((call(batch), batch.to_vec()));
        rest = behind;
    }
    batches
}

/// Run batches: the places of each, and its answer.
pub(crate) async fn answers(
    link: &Link,
    script: &'static Script,
    batches: Vec<Batch>,
) -> Result<Vec<(Vec<usize>, Result<Value, Error>)>, Error> {
    let mut answers = Vec::with_capacity(batches.len());
    let mut batches = batches.into_iter().peekable();
    while batches.peek().is_some() {
        let (mut calls, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        while calls.len() < PER_PIPELINE
            && let Some((call, of)) = batches.next_if(|(call, _)| {
                bytes += size(call);
                calls.is_empty() || bytes <= BYTES_PER_PIPELINE
            })
        {
            calls.push(call);
            places.push(of);
        }
        for (places, answer) in places.into_iter().zip(link.run_all(script, calls).await?) {
            answers.push((places, reply::accepted(script.name(), answer)));
        }
    }
    Ok(answers)
}

/// About how many bytes a call has.
fn size(call: &Cmd) -> usize {
    let size = |argument: Arg<&[u8]>| match argument {
        Arg::Simple(bytes) => bytes.len(),
        _ => 0,
    };
    call.args_iter().map(size).sum()
}

/// Run batches of a script that answers one word for each delivery; `refusal` says what a refused
/// call means for its deliveries.
pub(crate) async fn run(
    link: &Link,
    script: &'static Script,
    batches: Vec<Batch>,
    replies: &mut Replies,
    refusal: impl Fn(Error) -> Result<Reply, Error>,
) -> Result<(), Error> {
    for (places, answer) in answers(link, script, batches).await? {
        match answer {
            Ok(words) => note(script, &places, words, replies, |_, word| {
                word_reply(script.name(), word).map(Some)
            })?,
            Err(error) => {
                let reply = refusal(error)?;
                for place in places {
                    replies[place] = Some(reply.clone());
                }
            }
        }
    }
    Ok(())
}

/// Note the word about each delivery of a call.
pub(crate) fn note(
    script: &'static Script,
    places: &[usize],
    words: Value,
    replies: &mut Replies,
    meaning: impl Fn(usize, Value) -> Result<Option<Reply>, Error>,
) -> Result<(), Error> {
    let words = words::each(script.name(), words, places.len())?;
    for (&place, word) in places.iter().zip(words) {
        replies[place] = meaning(place, word)?;
    }
    Ok(())
}

/// The replies, if all are known.
pub(crate) fn complete(script: &'static Script, replies: Replies) -> Result<Vec<Reply>, Error> {
    let known: Option<Vec<Reply>> = replies.into_iter().collect();
    known.ok_or_else(|| incomplete(script.name()))
}
