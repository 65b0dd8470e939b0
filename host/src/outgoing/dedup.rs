//! Deduplication: the marks that handlers' acks leave, and the look at them before a start.
//!
//! A mark is a hash of 16 bytes in a set. A set holds the marks of a stretch of time, an eighth of the
//! window, and expires as a whole when the window behind it is over. The script that acknowledges looks for
//! the mark of a message and leaves it, so that two hosts cannot both handle it with effects.
//!
//! The clock of the server may be set back. Then there are sets of stretches that are still to come: those of
//! one window count as well.

use std::time::Duration;

use redis::Pipeline;
use sha2::{Digest, Sha256};

use crate::delivery::message::Message;
use crate::delivery::millis::millis;
use crate::outgoing::scripts;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::wire::dead_letter::AGAIN;
use crate::wire::keys;

/// How many stretches a window has.
const STRETCHES: u64 = 8;
/// Most marks that one script looks for.
const PER_CALL: usize = 500;

/// The bytes of a mark.
const MARK_LEN: usize = 16;

/// How duplicates are found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dedup {
    /// For how long after a handler's ack another message with the same id is a duplicate.
    pub window: Duration,
    /// The header that holds the id; `None` = the id of the message.
    pub header: Option<String>,
    /// The most ids that are remembered; beyond them none is added.
    pub max_ids: u64,
}

/// The sets of marks that a call looks at, and the set that it adds to.
pub(crate) struct Marks {
    /// Their keys: the present stretch comes first.
    pub(crate) keys: Vec<String>,
    /// How long a mark lives from now on, in milliseconds: until its set expires.
    pub(crate) expires_ms: u64,
}

impl Dedup {
    /// The mark of a message; `None` = it has no id, or it is to be handled again on purpose.
    pub(crate) fn mark(&self, message: &Message) -> Option<[u8; MARK_LEN]> {
        if message.headers.find(AGAIN).is_some() {
            return None;
        }
        let id = match &self.header {
            Some(name) => message.headers.find(name)?,
            None => message.id.as_bytes(),
        };
        let hash = Sha256::digest(id);
        hash.first_chunk().copied()
    }

    /// The sets of a queue at this time.
    pub(crate) fn marks(&self, key: &str, group: Option<&str>, now_ms: u64) -> Marks {
        let stretch = (millis(self.window) / STRETCHES).max(1);
        let present = now_ms / stretch;
        let past = (1..=STRETCHES).map_while(|back| present.checked_sub(back));
        // The clocks of hosts differ a little, and the server's may have been set back.
        let ahead = (1..=STRETCHES).map(|ahead| present.saturating_add(ahead));
        let all = std::iter::once(present).chain(past).chain(ahead);
        let keys = all.map(|n| keys::done(key, group, n));
        Marks {
            keys: keys.collect(),
            expires_ms: (present + 1) * stretch - now_ms + millis(self.window) + stretch,
        }
    }

    /// Note of each message whether it was handled already.
    pub(crate) async fn look_up(
        &self,
        link: &Link,
        marks: &Marks,
        messages: Vec<(&Message, &mut bool)>,
    ) -> Result<(), Error> {
        let script = &scripts::MARKED;
        let marked: Vec<_> = messages
            .into_iter()
            .filter_map(|(message, found)| Some((self.mark(message)?, found)))
            .collect();
        let mut rest = marked.into_iter().peekable();
        while rest.peek().is_some() {
            let some: Vec<_> = rest.by_ref().take(PER_CALL).collect();
            let keys: Vec<&str> = marks.keys.iter().map(String::as_str).collect();
            let mut call = script.on(&keys);
            for (mark, _) in &some {
                call.arg(&mark[..]);
            }
            let reply = link.run(script, &call).await?;
            for ((_, is_duplicate), found) in
                some.into_iter().zip(reply::array(script.name(), reply)?)
            {
                *is_duplicate = reply::integer(script.name(), &found)? == 1;
            }
        }
        Ok(())
    }
}

impl Marks {
    /// The clock of the server was set back since these sets were the present ones: those that are to expire too late
    /// by now count from now. Otherwise what a clock that was ahead has marked would stay until it is there again.
    pub(crate) async fn count_from_now(&self, link: &Link) -> Result<(), Error> {
        const COMMAND: &str = "PEXPIRE";
        let mut pipeline = Pipeline::with_capacity(self.keys.len());
        for key in &self.keys {
            let shorten = pipeline.cmd(COMMAND).arg(key);
            shorten.arg(self.expires_ms).arg("LT");
        }
        for reply in link.pipeline(COMMAND, &pipeline).await? {
            reply::accepted(COMMAND, reply)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::delivery::message::Headers;

    fn dedup(header: Option<&str>) -> Dedup {
        Dedup {
            window: Duration::from_secs(8),
            header: header.map(str::to_owned),
            max_ids: 10,
        }
    }

    fn message(id: &str, headers: &[(&str, &str)]) -> Message {
        let mut all = Headers::default();
        for (name, value) in headers {
            all.push(name.to_string(), value.to_string());
        }
        Message {
            id: Arc::from(id),
            queue: Arc::from("orders"),
            body: Bytes::new(),
            headers: all,
            enqueued_ms: 0,
        }
    }

    #[test]
    fn a_mark_stands_for_the_id_or_for_a_header() {
        let by_id = dedup(None);
        let mark = |id| by_id.mark(&message(id, &[])).unwrap();
        assert_eq!(mark("a"), mark("a"));
        assert_ne!(mark("a"), mark("b"));
        let by_header = dedup(Some("order"));
        let mark = |value| by_header.mark(&message("x", &[("Order", value)])).unwrap();
        assert_eq!(
            mark("1"),
            by_header.mark(&message("y", &[("order", "1")])).unwrap()
        );
        assert_ne!(mark("1"), mark("2"));
        assert_eq!(by_header.mark(&message("x", &[])), None);
        assert_eq!(by_id.mark(&message("a", &[(AGAIN, "1")])), None);
    }

    #[test]
    fn the_sets_cover_the_window_and_outlive_it() {
        let dedup = dedup(None);
        let names = |now| dedup.marks("orders", Some("g"), now).keys;
        let at = names(100_500);
        assert_eq!(at.len(), 17);
        assert_eq!(at[0], "{orders}:done:g:100");
        assert_eq!(at[8], "{orders}:done:g:92");
        assert_eq!(at[16], "{orders}:done:g:108");
        // A mark that is set now is looked at until the window is over, and its set is there until then.
        for later in [0, 1, 7_999, 8_000] {
            assert!(names(100_500 + later).contains(&at[0]), "{later}");
        }
        assert!(!names(100_500 + 9_000).contains(&at[0]));
        // Also if the clock is set back by up to a window.
        for earlier in [1, 4_000, 8_000] {
            assert!(names(100_500 - earlier).contains(&at[0]), "{earlier}");
        }
        assert!(dedup.marks("orders", Some("g"), 100_999).expires_ms >= 8_000);
        assert_eq!(dedup.marks("jobs", None, 0).keys[0], "{jobs}:done::0");
    }
}
