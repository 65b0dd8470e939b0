//! Effects: one script checks owner and count, finds every reason to refuse, writes what the attempt
//! published and wrote, and acknowledges. Deliveries in one call fail apart.
//!
//! Dies here: all of it has happened, or nothing. If the answer is lost, a repeat finds the delivery gone.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use redis::Cmd;
use sha2::{Digest, Sha256};

use crate::calls::words::{refused, reply_of};
use crate::calls::{Batch, PER_PIPELINE, Replies, all_of, answers, batches, note};
use crate::delivery::effect::{Effects, Publication, message_name};
use crate::delivery::key_value::Written;
use crate::delivery::ledger::Reply;
use crate::delivery::message::Message;
use crate::delivery::millis::millis_up;
use crate::delivery::reply::Answer;
use crate::delivery::text::hex;
use crate::outgoing::Outlets;
use crate::outgoing::outbox::{self, Outboxes};
use crate::outgoing::write::Write;
use crate::publish::{self, Destination};
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::wire::keys;
use crate::wire::reply as inbox_entry;

/// The longest id of a message, in bytes. A longer one is hashed.
const ID_MAX: usize = 1024;

/// A delivery to settle, as far as its effects go.
pub(crate) trait Acting {
    /// The message that was handled.
    fn message(&self) -> &Message;
    /// What happens with the acknowledgement of a handler; `None` = no handler acknowledged it.
    fn effects(&self) -> Option<&Effects>;
    /// The inbox to answer to, and the answer, if there is one.
    fn answer(&self, group: Option<&str>) -> Option<(String, Answer)>;
}

/// A queue whose handler has effects.
pub(crate) struct Source<'a> {
    pub(crate) outlets: &'a Outlets,
    /// The way to destinations in other slots; `None` = all is written directly.
    pub(crate) outboxes: Option<&'a Outboxes>,
    pub(crate) key: &'a str,
    pub(crate) group: Option<&'a str>,
    /// How long inboxes are kept, and the time of day, in epoch milliseconds; `None` = the queue answers to no producer.
    pub(crate) inboxes: Option<(Duration, u64)>,
}

/// A call of a script that settles deliveries with their effects.
pub(crate) struct Calls<'a, B, O, N, A> {
    pub(crate) link: &'a Link,
    pub(crate) script: &'static Script,
    /// The same script for deliveries without effects.
    pub(crate) script_without: &'static Script,
    /// Keys of the script between those of `begin` and those of the effects.
    pub(crate) between: &'a [String],
    /// Makes a call with these keys behind its own, and says how many are its own.
    pub(crate) begin: B,
    /// Adds a delivery to a call; its writes follow.
    pub(crate) one: O,
    /// The reply that a word means, if it is not one of the usual words.
    pub(crate) meaning: N,
    /// The same error; a missing stream or group has its own.
    pub(crate) about: A,
}

impl Source<'_> {
    /// Settle the deliveries at these places.
    pub(crate) async fn settle<S, B, O, N, A>(
        &self,
        calls: Calls<'_, B, O, N, A>,
        (settlements, places): (&[S], &[usize]),
        replies: &mut Replies,
    ) -> Result<(), Error>
    where
        S: Acting,
        B: Fn(&'static Script, &[&str]) -> (Cmd, usize),
        O: Fn(&S, &mut Cmd),
        N: Fn(&S, &str) -> Option<Reply>,
        A: Fn(Error) -> Error,
    {
        let (mut acting, mut plain) = (Vec::new(), Vec::new());
        for &place in places {
            match self.writes(&settlements[place]) {
                Ok(writes) if writes.iter().any(Write::grows) => acting.push((place, writes)),
                Ok(writes) => plain.push((place, writes)),
                Err(error) => replies[place] = Some(Reply::Refused(error.to_string())),
            }
        }
        for (script, ready) in [(calls.script, acting), (calls.script_without, plain)] {
            let mut batches = calls.batches(script, settlements, &ready);
            // One round trip after the other: a call that is answered before a failure stays answered.
            while !batches.is_empty() {
                let some = batches.drain(..batches.len().min(PER_PIPELINE)).collect();
                for (places, answer) in answers(calls.link, script, some).await? {
                    match answer {
                        Ok(words) => note(script, &places, words, replies, |place, word| {
                            let text = reply::text(script.name(), word)?;
                            match (calls.meaning)(&settlements[place], &text) {
                                Some(reply) => Ok(Some(reply)),
                                None => reply_of(script.name(), &text).map(Some),
                            }
                        })?,
                        Err(error) => {
                            let reply = refused((calls.about)(error))?;
                            for place in places {
                                replies[place] = Some(reply.clone());
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What the acknowledgement of a delivery writes, and what must not have changed for it.
    fn writes(&self, settlement: &impl Acting) -> Result<Vec<Write>, publish::Error> {
        let answer = self.answer(settlement).map(|packed| Write::Answer {
            packed,
            is_reply: settlement.effects().is_some(),
            is_small: settlement.effects().is_none_or(|all| all.reply().is_none()),
        });
        let Some(effects) = settlement.effects() else {
            return Ok(answer.into_iter().collect());
        };
        let source = settlement.message();
        let write = |(publication, number): (&Publication, usize)| {
            let outlet = self.outlets.get(&*publication.to);
            let outlet = outlet.ok_or(publish::Error::NoOutlet)?;
            let id = follow_up_id(self.key, self.group, &source.id, number);
            let left = effects.follow_ups_left();
            let write = follow_up(outlet, publication, source, &id, left)?;
            Ok(match self.outboxes {
                Some(outboxes) => outboxes.write(&publication.to, write),
                None => write,
            })
        };
        let published = effects.publications().iter().zip(1..).map(write);
        let written = values(effects).chain(answer);
        published.chain(written.map(Ok)).collect()
    }

    /// The answer to the producer of a message, as a script takes it, if it gets one.
    pub(crate) fn answer(&self, settlement: &impl Acting) -> Option<Bytes> {
        let (keep, now_ms) = self.inboxes?;
        let (inbox, answer) = settlement.answer(self.group)?;
        let key = keys::replies(self.key, &inbox);
        Some(inbox_entry::pack(&key, millis_up(keep), now_ms, &answer))
    }
}

impl<B, O, N, A> Calls<'_, B, O, N, A>
where
    B: Fn(&'static Script, &[&str]) -> (Cmd, usize),
{
    /// Calls about deliveries, by their places, with what each writes.
    fn batches<S>(
        &self,
        script: &'static Script,
        settlements: &[S],
        ready: &[(usize, Vec<Write>)],
    ) -> Vec<Batch>
    where
        O: Fn(&S, &mut Cmd),
    {
        let size = |index: usize| ready[index].1.iter().map(Write::size).sum();
        let mut batches = batches(&all_of(ready), size, |indexes| {
            let writes = indexes.iter().flat_map(|&index| &ready[index].1);
            let mut written: Vec<&str> = writes.filter_map(Write::key).collect();
            written.sort_unstable();
            written.dedup();
            let between = self.between.iter().map(String::as_str);
            let keys: Vec<&str> = between.chain(written.iter().copied()).collect();
            let (mut call, own) = (self.begin)(script, &keys);
            let place_of = |write: &Write| {
                let at = written.binary_search(&write.key()?).ok()?;
                Some(own + self.between.len() + 1 + at)
            };
            for &index in indexes {
                let (place, writes) = &ready[index];
                (self.one)(&settlements[*place], &mut call);
                call.arg(writes.len());
                for write in writes {
                    add(write, place_of(write).unwrap_or(0), &mut call);
                }
            }
            call
        });
        for index in batches.iter_mut().flat_map(|(_, indexes)| indexes) {
            *index = ready[*index].0;
        }
        batches
    }
}

/// What an attempt has read and written.
fn values(effects: &Effects) -> impl Iterator<Item = Write> {
    let seen = effects.seen().map(|(key, seen)| Write::Expect {
        key: key.to_owned(),
        seen: seen.clone(),
    });
    let written = effects.written().map(|(key, written)| Write::Value {
        key: key.to_owned(),
        written: written.clone(),
    });
    seen.chain(written)
}

/// The message that follows from `source`, as it is written. `left` messages may follow from it.
fn follow_up(
    outlet: &Destination,
    publication: &Publication,
    source: &Message,
    id: &str,
    left: u64,
) -> Result<Write, publish::Error> {
    let delay = publication.delay.filter(|delay| !delay.is_zero());
    let headers = match outlet.takes_headers() || delay.is_some() {
        true => Cow::Owned(publication.complete_headers(source, id, left)),
        false => Cow::Borrowed(&publication.headers),
    };
    match delay {
        Some(delay) => {
            let hash = Sha256::digest(id);
            let token = *hash.first_chunk().expect("a digest has 32 bytes");
            let later = outlet.write_later(&headers, &publication.body, delay, token)?;
            Ok(Write::Later(later))
        }
        None => Write::now(outlet, &headers, &publication.body),
    }
}

/// The id of the `number`th message that follows from a message. Entry ids are unique in one stream only,
/// and two groups of a stream share them.
fn follow_up_id(key: &str, group: Option<&str>, id: &str, number: usize) -> String {
    let id = format!("{}#{number}", message_name(key, group, id));
    match id.len() <= ID_MAX {
        true => id,
        false => hex(&Sha256::digest(&id)),
    }
}

/// Add a write to the arguments of a script. `place` is that of its key among the keys of the call.
pub(crate) fn add(write: &Write, place: usize, call: &mut Cmd) {
    let mut add = |verb: &str, arguments: &[&[u8]]| {
        call.arg(verb).arg(place).arg(arguments.len());
        for argument in arguments {
            call.arg(*argument);
        }
    };
    match write {
        Write::Append { fields, .. } => {
            let flat = fields.iter().flat_map(|(name, value)| [name, value]);
            let flat: Vec<&[u8]> = flat.map(Bytes::as_ref).collect();
            add("append", &flat);
        }
        Write::Push { value, .. } => add("push", &[value]),
        Write::Announce {
            channel,
            sharded,
            value,
        } => {
            let verb = if *sharded {
                "announce-shard"
            } else {
                "announce"
            };
            add(verb, &[channel.as_bytes(), value]);
        }
        Write::Later(later) => {
            add(
                "later",
                &[later.delay_ms.to_string().as_bytes(), &later.member],
            );
        }
        Write::Outbox { max, write, .. } => {
            let max = max.to_string();
            let parts = outbox::encode(write);
            let parts = parts.iter().map(|part| &part[..]);
            let all: Vec<&[u8]> = std::iter::once(max.as_bytes()).chain(parts).collect();
            add("outbox", &all);
        }
        Write::Answer {
            packed, is_reply, ..
        } => {
            add(if *is_reply { "reply" } else { "tell" }, &[packed]);
        }
        Write::Value { written, .. } => match written {
            Written {
                value: Some(value),
                ttl: Some(ttl),
            } => add(
                "set",
                &[value, b"PX", millis_up(*ttl).to_string().as_bytes()],
            ),
            Written {
                value: Some(value), ..
            } => add("set", &[value]),
            Written { value: None, .. } => add("delete", &[]),
        },
        Write::Expect { seen, .. } => match &seen.value {
            Some((length, digest)) => {
                add(
                    "expect",
                    &[length.to_string().as_bytes(), digest.as_bytes()],
                );
            }
            None => add("expect", &[]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_follow_ups_name_queue_group_message_and_number() {
        let id = |group| follow_up_id("orders", group, "1-0", 2);
        assert_eq!(id(Some("g")), "orders/g/1-0#2");
        assert_eq!(id(None), "orders/1-0#2");
        let long = "x".repeat(ID_MAX);
        let (one, two) = (
            follow_up_id("orders", Some("g"), &long, 1),
            follow_up_id("orders", Some("h"), &long, 1),
        );
        assert_eq!((one.len(), two.len()), (64, 64));
        assert_ne!(one, two);
        // A producer chooses an id: it names no message of another group.
        assert_ne!(
            follow_up_id("orders", Some("g"), "h/1-0", 1),
            follow_up_id("orders", Some("g/h"), "1-0", 1)
        );
    }
}
