//! The content of a replayed copy of a dead letter: the message as it died, with its attempts
//! reset.

use bytes::Bytes;

use super::{AGAIN, CALLS, CRASHES, FRAMING, HELD, LOG, ONLY_GROUP, RECORDING, REPLAYED, Rewrite};
use crate::delivery::message::{
    Headers, REDIS_DELIVERY_COUNT, REDIS_IDLE_MS, RETRY_COUNT, RUSTSTREAM_RETRY_COUNT,
};
use crate::wire::death::{self, X_DEATH};

/// Headers that describe only the time before the replay. Attempts start again.
const RESET: [&str; 13] = [
    RETRY_COUNT,
    RUSTSTREAM_RETRY_COUNT,
    REDIS_DELIVERY_COUNT,
    REDIS_IDLE_MS,
    CRASHES,
    HELD,
    ONLY_GROUP,
    AGAIN,
    REPLAYED,
    FRAMING,
    LOG,
    CALLS,
    RECORDING,
];

/// What a replayed copy says of its replay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Replaying<'a> {
    /// The only consumer group that runs the copy; `None` = every group.
    pub only_group: Option<&'a str>,
    /// The copy is handled although a message with its id was handled already.
    pub again: bool,
}

/// The number of replays of a dead letter.
pub fn count(headers: &Headers) -> u64 {
    headers.find_number(REPLAYED).unwrap_or(0)
}

/// The fields of a replayed copy: the fields of the dead letter in their order, with attempts reset
/// and one more replay counted. The history is kept, but its past deaths no longer make a cycle.
pub fn stream_fields(
    raw: &[(Bytes, Bytes)],
    headers: &Headers,
    replaying: Replaying<'_>,
) -> Vec<(Bytes, Bytes)> {
    rewrite(headers, replaying).fields(raw)
}

/// The headers of a replayed copy: the same as in [`stream_fields`].
pub fn headers(headers: &Headers, replaying: Replaying<'_>) -> Headers {
    rewrite(headers, replaying).headers(headers)
}

fn rewrite(headers: &Headers, replaying: Replaying<'_>) -> Rewrite {
    let mut rewrite = Rewrite::without(&RESET);
    let mut history = death::read(headers).history;
    // A history that cannot be read stays unchanged.
    if !history.is_empty() {
        history.replay();
        rewrite.dropped.push(X_DEATH);
        rewrite.add(X_DEATH, death::write(&history));
    }
    let count = count(headers).saturating_add(1);
    rewrite.add(REPLAYED, count.to_string());
    if let Some(group) = replaying.only_group {
        rewrite.add(ONLY_GROUP, group);
    }
    if replaying.again {
        rewrite.add(AGAIN, "1");
    }
    rewrite
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::evidence::Evidence;
    use crate::delivery::policy::{Reason, Rejection};
    use crate::wire::dead_letter::{Context, only_group};
    use crate::wire::stream;

    fn pairs(fields: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
        let pair = |(n, v): &(&str, &str)| (n.to_string().into(), v.to_string().into());
        fields.iter().map(pair).collect()
    }

    /// What a host writes for this entry when its handler never saw it.
    fn dead(raw: &[(Bytes, Bytes)]) -> Vec<(Bytes, Bytes)> {
        let rejection = Rejection {
            reason: Reason::Expired,
            detail: String::new(),
            attempts: 2,
            handled: false,
        };
        let context = Context {
            source: "orders",
            source_id: "7-1",
            group: Some("workers"),
            rejection: &rejection,
            handler: "",
            evidence: Some(&Evidence {
                log: Some("what it wrote".into()),
                calls: Some("{}".into()),
                recording: None,
            }),
            now_ms: 1000,
            expires_at_ms: None,
        };
        super::super::stream_fields(raw, &stream::headers(raw), &context).0
    }

    #[test]
    fn a_copy_resets_its_attempts_and_keeps_its_history() {
        let original = pairs(&[
            ("h:X-Tenant", "7"),
            ("_payload", "hi"),
            ("extra", "\u{1}"),
            ("h:x-retry-count", "4"),
        ]);
        let letter = dead(&original);
        let headers = stream::headers(&letter);
        let only_workers = Replaying {
            only_group: Some("workers"),
            again: true,
        };
        let copy = stream_fields(&letter, &headers, only_workers);
        assert_eq!(copy[..3], original[..3], "bytes and order are kept");
        let headers = stream::headers(&copy);
        assert_eq!(headers.retry_count(), 0);
        assert_eq!(count(&headers), 1);
        assert_eq!(only_group(&headers), Some("workers"));
        assert_eq!(headers.find_str(AGAIN), Some("1"));
        for name in [LOG, CALLS] {
            assert!(stream::headers(&letter).find(name).is_some());
            assert!(headers.find(name).is_none(), "{name}");
        }
        assert_eq!(headers.find_str("x-message-id"), Some("7-1"));
        assert_eq!(headers.find_str("x-first-death-reason"), Some("expired"));
        let before = death::read(&stream::headers(&letter)).history;
        let after = death::read(&headers).history;
        assert!(before.cycles_to("orders") && !after.cycles_to("orders"));
        assert_eq!(after.records().len(), 1);

        // It dies and is replayed again: nothing piles up.
        let again = dead(&copy);
        assert_eq!(only_group(&stream::headers(&again)), None);
        let again = stream_fields(&again, &stream::headers(&again), Replaying::default());
        let headers = stream::headers(&again);
        assert_eq!(headers.find(AGAIN), None);
        assert_eq!(count(&headers), 2);
        assert_eq!(death::read(&headers).history.records()[0].count, 2);
        assert_eq!(
            again.len(),
            copy.len() - 2,
            "all but the group and the mark"
        );
    }

    #[test]
    fn unknown_headers_are_kept() {
        let raw = pairs(&[
            ("a", "1"),
            ("a", "2"),
            ("h:X-Death", "[["),
            ("h:X-Replayed", "often"),
            ("h:x-only-group", "mine"),
        ]);
        let copy = stream_fields(&raw, &stream::headers(&raw), Replaying::default());
        assert_eq!(copy[..3], raw[..3]);
        assert_eq!(copy[3..], pairs(&[("h:x-replayed", "1")]));
        let listed = headers(&stream::headers(&raw), Replaying::default());
        assert_eq!(listed, stream::headers(&copy));
    }
}
