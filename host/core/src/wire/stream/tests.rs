use proptest::prelude::*;

use super::*;
use crate::delivery::policy::Reason;
use crate::wire::decoded::MESSAGE_ID_MAX;

fn field(name: &str, value: &str) -> (Bytes, Bytes) {
    (
        Bytes::copy_from_slice(name.as_bytes()),
        Bytes::copy_from_slice(value.as_bytes()),
    )
}

fn read(fields: &[(Bytes, Bytes)]) -> Decoded {
    read_with(fields, &Options::default())
}

fn read_with(fields: &[(Bytes, Bytes)], options: &Options) -> Decoded {
    decode(&"orders".into(), "7-1", 7, fields, options)
}

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

proptest! {
    #[test]
    fn an_encoded_entry_reads_back(
        body in bytes(200),
        pairs in prop::collection::vec((bytes(20), bytes(50)), 0..10),
        other_field in any::<bool>(),
    ) {
        // A body field that looks like a header is a mistake of the operator. The configuration
        // refuses it.
        let options = Options {
            body_field: Bytes::from_static(if other_field { b"data" } else { b"_payload" }),
            missing_body: MissingBody::Malformed,
        };
        let headers = Headers::new(pairs);
        let decoded = read_with(&encode(body.clone(), &headers, &options.body_field), &options);
        prop_assert_eq!(decoded.defect, None);
        prop_assert_eq!(decoded.message.body, body);
        prop_assert_eq!(decoded.message.headers, headers);
    }

    #[test]
    fn any_entry_is_read_without_a_panic(pairs in prop::collection::vec((bytes(20), bytes(50)), 0..10)) {
        let decoded = read(&pairs);
        let own: Vec<_> = pairs.iter().filter(|(name, _)| !name.starts_with(b"h:")).collect();
        match decoded.defect {
            Some(defect) => {
                prop_assert!(defect.detail.len() < 1024);
                prop_assert!(decoded.message.body.is_empty());
            }
            // An independent parser reads it back.
            None if own.iter().all(|(name, _)| name != "_payload") => {
                let parsed: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_slice(&decoded.message.body).unwrap();
                prop_assert_eq!(parsed.len(), own.len());
                for (name, value) in own {
                    let value = std::str::from_utf8(value).unwrap();
                    prop_assert_eq!(&parsed[std::str::from_utf8(name).unwrap()], value);
                }
            }
            None => {}
        }
    }
}

#[test]
fn an_entry_with_a_payload() {
    let decoded = read(&[
        field("h:X-Tenant", "7"),
        field("_payload", "body"),
        field("note", "kept by copies, no header"),
        field("h:x-retry-count", "2"),
        field("h:x-ruststream-retry-count", "4"),
        field("_payload", "a second one"),
    ]);
    assert_eq!(decoded.defect, None);
    assert_eq!(decoded.message.body, "body");
    assert_eq!(decoded.message.headers.len(), 3);
    assert_eq!(decoded.message.headers.find_str("x-tenant"), Some("7"));
    assert_eq!(decoded.header, 4);
    assert_eq!(
        (&*decoded.message.id, decoded.message.enqueued_ms),
        ("7-1", 7)
    );
}

#[test]
fn an_entry_of_plain_fields_is_a_json_object_in_their_order() {
    let decoded = read(&[
        field("z", "1"),
        field("h:kind", "order"),
        field("a", "say \"hi\"\n"),
        field("", ""),
    ]);
    assert_eq!(decoded.defect, None);
    assert_eq!(
        decoded.message.body,
        r#"{"z":"1","a":"say \"hi\"\n","":""}"#
    );
    assert_eq!(decoded.message.headers.len(), 1);
    assert_eq!(read(&[field("h:only", "x")]).message.body, "{}");
}

#[test]
fn fields_that_make_no_json_object_are_malformed() {
    let repeated = read(&[
        field("a", "1"),
        field("b", "2"),
        field("a", "3"),
        field("h:k", "v"),
    ]);
    let defect = repeated.defect.unwrap();
    assert_eq!(defect.reason, Reason::Malformed);
    assert!(
        defect.detail.contains("`a` is repeated"),
        "{}",
        defect.detail
    );
    assert_eq!(repeated.message.headers.len(), 1);

    let not_utf8 = Bytes::from_static(b"\xff");
    let value = read(&[(Bytes::from_static(b"a"), not_utf8.clone())])
        .defect
        .unwrap();
    assert!(
        value.detail.contains("the value of its field `a`"),
        "{}",
        value.detail
    );
    let name = read(&[(not_utf8, Bytes::new())]).defect.unwrap();
    assert!(
        name.detail.contains("the name of its field"),
        "{}",
        name.detail
    );
}

#[test]
fn the_details_of_hostile_names_stay_short_and_printable() {
    let long = Bytes::from(vec![b'\n'; 100_000]);
    let detail = read(&[(long, Bytes::from_static(b"\xff"))])
        .defect
        .unwrap()
        .detail;
    assert!(detail.len() < 512 && !detail.contains('\n'), "{detail}");
}

#[test]
fn a_missing_body_can_be_malformed_and_another_field_the_body() {
    let strict = Options {
        missing_body: MissingBody::Malformed,
        ..Options::default()
    };
    let defect = read_with(&[field("id", "1")], &strict).defect.unwrap();
    assert_eq!(defect.detail, "the entry has no field `_payload`");
    let other = Options {
        body_field: Bytes::from_static(b"data"),
        ..Options::default()
    };
    let decoded = read_with(&[field("_payload", "no"), field("data", "yes")], &other);
    assert_eq!(decoded.message.body, "yes");
}

#[test]
fn headers_of_the_host_are_not_read_from_the_entry() {
    let decoded = read(&[
        field("_payload", ""),
        field("h:Redis-Delivery-Count", "99"),
        field("h:redis-idle-ms", "1"),
        field("h:x-dead-letter-reason", "seen by a queue behind"),
    ]);
    assert_eq!(decoded.message.headers.len(), 1);
}

#[test]
fn a_valid_message_id_becomes_the_id() {
    let id = |value: &[u8]| {
        let fields = [
            field("_payload", ""),
            (
                Bytes::from_static(b"h:X-Message-Id"),
                Bytes::copy_from_slice(value),
            ),
        ];
        read(&fields).message.id.to_string()
    };
    assert_eq!(id(b"order-17"), "order-17");
    assert_eq!(id(b""), "7-1");
    assert_eq!(id(b"\xff"), "7-1");
    assert_eq!(id(&[b'x'; MESSAGE_ID_MAX + 1]), "7-1");
}
