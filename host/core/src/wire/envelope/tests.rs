use proptest::prelude::*;

use super::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..max),
        ".{0,30}".prop_map(String::into_bytes),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    prop::collection::vec((".{0,12}", bytes(40)), 0..8).prop_map(|pairs| {
        Headers::new(
            pairs
                .into_iter()
                .map(|(n, v)| (n.into(), v.into()))
                .collect(),
        )
    })
}

proptest! {
    #[test]
    fn a_written_envelope_reads_back(headers in headers(), payload in bytes(200)) {
        let envelope = encode(&headers, &payload).unwrap();
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&envelope).is_ok());
        prop_assert_eq!(decode(&envelope), Some((headers, payload.into())));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(value in bytes(200)) {
        decode(&value);
    }

    #[test]
    fn a_damaged_envelope_is_read_without_a_panic(
        headers in headers(),
        payload in bytes(20),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut envelope = encode(&headers, &payload).unwrap().to_vec();
        let at = at.index(envelope.len());
        envelope[at] = byte;
        decode(&envelope);
        prop_assert_eq!(decode(&envelope[..at]), None);
    }
}

#[test]
fn the_layout() {
    let mut headers = Headers::default();
    headers.push("k", "v\"");
    headers.push("k", &b"\xff\x00"[..]);
    let envelope = encode(&headers, "h\u{e9}".as_bytes()).unwrap();
    assert_eq!(
        std::str::from_utf8(&envelope).unwrap(),
        "{\"headers\":{\"k\":\"v\\\"\",\"k\":[255,0]},\"payload\":\"h\u{e9}\"}"
    );
    assert_eq!(
        encode(&Headers::default(), b"\xff").unwrap(),
        r#"{"headers":{},"payload":[255]}"#
    );
}

#[test]
fn envelopes_of_other_programs_are_read() {
    let (headers, payload) = decode(
        br#" { "payload" : "a\u0041" , "headers" : { "b": "1", "a": [50, 51], "b": "2" } } "#,
    )
    .unwrap();
    assert_eq!(payload, "aA");
    let names: Vec<_> = headers
        .iter()
        .map(|(n, v)| (n.as_ref(), v.as_ref()))
        .collect();
    assert_eq!(names, [(&b"b"[..], &b"1"[..]), (b"a", b"23"), (b"b", b"2")]);
    assert_eq!(
        decode(br#"{"payload":""}"#),
        Some((Headers::default(), Bytes::new()))
    );
}

#[test]
fn other_values_are_not_envelopes() {
    for value in [
        "",
        "{}",
        "null",
        "\"text\"",
        r#"{"id":1}"#,
        r#"{"headers":{}}"#,
        r#"{"headers":{},"payload":{"a":1}}"#,
        r#"{"headers":{},"payload":null}"#,
        r#"{"headers":{"a":1},"payload":""}"#,
        r#"{"headers":[],"payload":""}"#,
        r#"{"headers":{},"payload":[256]}"#,
        r#"{"headers":{},"payload":[-1]}"#,
        r#"{"headers":{},"payload":[1.5]}"#,
        r#"{"headers":{},"payload":"a","more":1}"#,
        r#"{"headers":{},"payload":"a","payload":"b"}"#,
        r#"{"headers":{},"payload":"a"} trailing"#,
    ] {
        assert_eq!(decode(value.as_bytes()), None, "{value}");
    }
    assert_eq!(decode("[".repeat(200_000).as_bytes()), None);
    assert_eq!(
        decode(format!(r#"{{"payload":{}"#, "[".repeat(200_000)).as_bytes()),
        None
    );
}

#[test]
fn a_name_must_be_text() {
    let headers = Headers::new(vec![(Bytes::from_static(b"\xff"), Bytes::new())]);
    assert_eq!(encode(&headers, b""), Err(Error::Name(0)));
}
