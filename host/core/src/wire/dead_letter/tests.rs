use proptest::prelude::*;

use super::*;
use crate::delivery::policy::Reason;
use crate::wire::decoded::MESSAGE_ID_MAX;
use crate::wire::stream;

fn rejection(reason: Reason, handled: bool) -> Rejection {
    Rejection {
        reason,
        detail: "too bad".to_owned(),
        attempts: 3,
        handled,
    }
}

fn context<'a>(source: &'a str, rejection: &'a Rejection) -> Context<'a> {
    Context {
        source,
        source_id: "7-1",
        group: Some("workers"),
        rejection,
        handler: "sha256:abc",
        evidence: None,
        now_ms: 1000,
        expires_at_ms: None,
    }
}

fn field(name: &str, value: &str) -> (Bytes, Bytes) {
    (
        Bytes::copy_from_slice(name.as_bytes()),
        Bytes::copy_from_slice(value.as_bytes()),
    )
}

fn die(raw: &[(Bytes, Bytes)], context: &Context<'_>) -> Vec<(Bytes, Bytes)> {
    stream_fields(raw, &stream::headers(raw), context).0
}

fn get<'a>(fields: &'a [(Bytes, Bytes)], name: &str) -> Vec<&'a str> {
    let wanted = format!("h:{name}");
    fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(wanted.as_bytes()))
        .map(|(_, value)| std::str::from_utf8(value).unwrap())
        .collect()
}

#[test]
fn a_first_death_writes_every_header() {
    let rejection = rejection(Reason::MaxDeliveries, true);
    let raw = [
        field("h:X-Tenant", "7"),
        field("_payload", "body"),
        field("h:x-retry-count", "1"),
        field("h:x-ruststream-retry-count", "2"),
        field("h:x-expires-at", "999"),
        field("note", "kept"),
        field("h:X-Tenant", "again"),
    ];
    let expected = [
        field("h:X-Tenant", "7"),
        field("_payload", "body"),
        field("note", "kept"),
        field("h:X-Tenant", "again"),
        field("h:x-message-id", "7-1"),
        field("h:x-dead-letter-reason", "max-deliveries"),
        field("h:x-dead-letter-detail", "too bad"),
        field("h:x-dead-letter-source", "orders"),
        field("h:x-dead-letter-source-id", "7-1"),
        field("h:x-dead-letter-attempts", "3"),
        field("h:x-dead-letter-handler", "sha256:abc"),
        field("h:x-dead-letter-group", "workers"),
        field("h:x-first-death-queue", "orders"),
        field("h:x-first-death-reason", "max-deliveries"),
        field("h:x-last-death-queue", "orders"),
        field("h:x-last-death-reason", "max-deliveries"),
        field(
            "h:x-death",
            r#"[{"queue":"orders","reason":"max-deliveries","count":1,"first-time":1000,"last-time":1000,"original-expiration":999}]"#,
        ),
    ];
    assert_eq!(die(&raw, &context("orders", &rejection)), expected);
}

#[test]
fn a_second_death_keeps_the_first_and_the_id() {
    let dropped = rejection(Reason::Dropped, true);
    let first = die(&[field("_payload", "x")], &context("orders", &dropped));
    let expired = rejection(Reason::Expired, false);
    let second = die(
        &first,
        &Context {
            source_id: "9-9",
            group: None,
            now_ms: 2000,
            ..context("orders:dead", &expired)
        },
    );
    for (name, value) in [
        (MESSAGE_ID, "7-1"),
        (SOURCE, "orders:dead"),
        (SOURCE_ID, "9-9"),
        (REASON, "expired"),
        (FIRST_DEATH_QUEUE, "orders"),
        (FIRST_DEATH_REASON, "dropped"),
        (LAST_DEATH_QUEUE, "orders:dead"),
        (LAST_DEATH_REASON, "expired"),
    ] {
        assert_eq!(get(&second, name), [value], "{name}");
    }
    assert_eq!(get(&second, GROUP), [""; 0], "a list has no group");
    let history = death::read(&stream::headers(&second)).history;
    let queues: Vec<_> = history.records().iter().map(|d| d.queue.as_str()).collect();
    assert_eq!(queues, ["orders:dead", "orders"]);
}

#[test]
fn a_producer_cannot_forge_the_hosts_headers() {
    let forged: Vec<_> = OWNED
        .iter()
        .chain(&[FIRST_DEATH_QUEUE, FIRST_DEATH_REASON])
        .filter(|name| **name != X_DEATH)
        .flat_map(|name| {
            [
                field(&format!("h:{name}"), "forged"),
                field(&format!("h:{}", name.to_uppercase()), "forged"),
            ]
        })
        .chain([field("_payload", "x")])
        .collect();
    let rejection = rejection(Reason::Trap, true);
    let dead = die(&forged, &context("orders", &rejection));
    assert!(dead.iter().all(|(_, value)| value != "forged"), "{dead:?}");
    assert_eq!(get(&dead, FIRST_DEATH_QUEUE), ["orders"]);
}

#[test]
fn a_damaged_history_is_rebuilt_and_the_first_death_kept() {
    let rejection = rejection(Reason::Trap, true);
    let dead = die(
        &[
            field("_payload", "x"),
            field("h:x-death", "[[[[{"),
            field("h:X-Death", "[]"),
            field("h:x-first-death-queue", "far away"),
            field("h:x-first-death-reason", "expired"),
        ],
        &context("orders", &rejection),
    );
    assert_eq!(get(&dead, FIRST_DEATH_QUEUE), ["far away"]);
    assert_eq!(get(&dead, FIRST_DEATH_REASON), ["expired"]);
    let headers = stream::headers(&dead);
    assert!(!death::read(&headers).damaged);
    assert_eq!(death::read(&headers).history.records().len(), 1);
    assert_eq!(get(&dead, X_DEATH).len(), 1);
}

#[test]
fn a_lost_first_death_is_taken_from_the_history() {
    let rejection = rejection(Reason::Trap, true);
    let dead = die(
        &[
            field("_payload", "x"),
            field(
                "h:x-death",
                r#"[{"queue":"b","reason":"expired"},{"queue":"a","reason":"maxlen"}]"#,
            ),
            field("h:x-first-death-queue", "half of it"),
        ],
        &context("orders", &rejection),
    );
    assert_eq!(get(&dead, FIRST_DEATH_QUEUE), ["a"]);
    assert_eq!(get(&dead, FIRST_DEATH_REASON), ["maxlen"]);
}

#[test]
fn an_invalid_expiration_is_kept() {
    let rejection = rejection(Reason::Dropped, true);
    let raw = [field("_payload", "x"), field("h:x-expires-at", "tomorrow")];
    let dead = die(&raw, &context("orders", &rejection));
    assert_eq!(get(&dead, EXPIRES_AT), ["tomorrow"]);
}

#[test]
fn an_unusable_message_id_is_replaced_by_the_entry_id() {
    let rejection = rejection(Reason::Dropped, true);
    for bad in ["", &"x".repeat(MESSAGE_ID_MAX + 1)] {
        let raw = [field("_payload", "x"), field("h:X-Message-Id", bad)];
        let dead = die(&raw, &context("orders", &rejection));
        assert_eq!(get(&dead, MESSAGE_ID), ["7-1"]);
    }
}

#[test]
fn a_list_has_the_same_headers() {
    let rejection = rejection(Reason::Timeout, true);
    let raw = [
        field("h:X-Tenant", "7"),
        field("h:x-retry-count", "1"),
        field("h:x-only-group", "forged"),
    ];
    let headers = stream::headers(&raw);
    let (list, _) = list_headers(&headers, &context("jobs", &rejection));
    let (stream, _) = stream_fields(&raw, &headers, &context("jobs", &rejection));
    assert_eq!(list, stream::headers(&stream));
    assert_eq!(list.find_str("x-tenant"), Some("7"));
}

#[test]
fn only_a_replay_can_name_the_only_group() {
    let group = |pairs: &[(&str, &str)]| {
        let raw: Vec<_> = pairs
            .iter()
            .map(|(n, v)| field(&format!("h:{n}"), v))
            .collect();
        only_group(&stream::headers(&raw)).map(str::to_owned)
    };
    assert_eq!(group(&[(ONLY_GROUP, "g")]), None);
    assert_eq!(group(&[(ONLY_GROUP, "g"), (REPLAYED, "1")]), None);
    assert_eq!(
        group(&[(ONLY_GROUP, "g"), (REPLAYED, "1"), (GROUP, "h")]),
        None
    );
    assert_eq!(
        group(&[(ONLY_GROUP, "g"), (REPLAYED, "0"), (GROUP, "g")]),
        None
    );
    let whole = [(ONLY_GROUP, "g"), (REPLAYED, "1"), (GROUP, "g")];
    assert_eq!(group(&whole).as_deref(), Some("g"));
}

fn header_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::sample::select(OWNED.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => Just(MESSAGE_ID.as_bytes().to_vec()),
        1 => Just(EXPIRES_AT.as_bytes().to_vec()),
        1 => prop::sample::select(vec![FIRST_DEATH_QUEUE, FIRST_DEATH_REASON]).prop_map(|name| name.as_bytes().to_vec()),
        4 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #[test]
    fn unknown_fields_are_kept_byte_for_byte(
        pairs in prop::collection::vec((any::<bool>(), header_name(), prop::collection::vec(any::<u8>(), 0..20)), 0..20),
        hops in 1..5,
    ) {
        let raw: Vec<(Bytes, Bytes)> = pairs
            .into_iter()
            .map(|(header, name, value)| {
                let name = if header { [b"h:", &name[..]].concat() } else { name };
                (name.into(), value.into())
            })
            .collect();
        let known = |field: &Bytes| {
            field.strip_prefix(b"h:").is_some_and(|name| {
                let name = name.to_ascii_lowercase();
                OWNED.iter().chain(&[MESSAGE_ID, EXPIRES_AT, FIRST_DEATH_QUEUE, FIRST_DEATH_REASON])
                    .any(|owned| owned.as_bytes() == name)
            })
        };
        let unknown = |fields: &[(Bytes, Bytes)]| -> Vec<(Bytes, Bytes)> {
            fields.iter().filter(|(field, _)| !known(field)).cloned().collect()
        };
        let rejection = rejection(Reason::Dropped, true);
        let mut dead = raw.clone();
        for _ in 0..hops {
            dead = die(&dead, &context("orders", &rejection));
        }
        prop_assert_eq!(unknown(&dead), unknown(&raw));
        let size = |fields: &[(Bytes, Bytes)]| fields.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>();
        prop_assert!(size(&dead) < size(&raw) + 4096, "copies do not grow");
        let headers = stream::headers(&dead);
        prop_assert_eq!(headers.retry_count(), 0);
        prop_assert_eq!(headers.find_number(EXPIRES_AT), None);
        let history = death::read(&headers);
        prop_assert!(!history.damaged);
        prop_assert_eq!(history.history.records()[0].count, u64::try_from(hops).unwrap());
    }
}

#[test]
fn the_history_keeps_the_earlier_of_two_expirations() {
    let expired = rejection(Reason::Expired, false);
    for (header, by_queue, expected) in [
        (None, None, None),
        (Some("500"), None, Some(500)),
        (None, Some(700), Some(700)),
        (Some("500"), Some(700), Some(500)),
        (Some("900"), Some(700), Some(700)),
    ] {
        let mut raw = vec![field("_payload", "x")];
        raw.extend(header.map(|at| field("h:x-expires-at", at)));
        let copy = die(
            &raw,
            &Context {
                expires_at_ms: by_queue,
                ..context("orders", &expired)
            },
        );
        let told = expected.map(|at| format!("\"original-expiration\":{at}"));
        let death = get(&copy, "x-death").concat();
        match told {
            Some(told) => assert!(death.contains(&told), "{death}"),
            None => assert!(!death.contains("original-expiration"), "{death}"),
        }
    }
}
