use proptest::prelude::*;

use super::*;
use crate::delivery::policy::Reason;

fn read(value: &[u8], framing: Framing) -> Decoded {
    decode(
        &"jobs".into(),
        "token",
        0,
        &Bytes::copy_from_slice(value),
        framing,
    )
}

fn headers() -> Headers {
    let mut headers = Headers::default();
    headers.push("K", "v");
    headers.push("x-retry-count", "2");
    headers
}

#[test]
fn each_framing_reads_each_value_as_documented() {
    let body = Bytes::from_static(b"body");
    let frame = encode(&headers(), &body, Codec::Frame).unwrap();
    let envelope = encode(&headers(), &body, Codec::Json).unwrap();
    let raw = Bytes::from_static(b"{\"id\":1}");
    let cut = frame.slice(..frame.len() - body.len() - 1);
    // Ok(body, headers), or malformed.
    let seen = |value: &Bytes, framing| {
        let decoded = read(value, framing);
        assert_eq!(&*decoded.message.id, "token");
        match decoded.defect {
            None => Some((decoded.message.body, decoded.message.headers.len())),
            Some(defect) => {
                assert_eq!(defect.reason, Reason::Malformed);
                assert!(decoded.message.body.is_empty() && !defect.detail.is_empty());
                None
            }
        }
    };
    let whole = |value: &Bytes| Some((value.clone(), 0));
    let parts = Some((body.clone(), 2));

    assert_eq!(seen(&frame, Framing::Auto), parts);
    assert_eq!(seen(&envelope, Framing::Auto), whole(&envelope));
    assert_eq!(seen(&raw, Framing::Auto), whole(&raw));
    assert_eq!(seen(&cut, Framing::Auto), whole(&cut));

    assert_eq!(seen(&frame, Framing::Frame), parts);
    assert_eq!(seen(&envelope, Framing::Frame), None);
    assert_eq!(seen(&raw, Framing::Frame), None);
    assert_eq!(seen(&cut, Framing::Frame), None);

    for value in [&frame, &envelope, &raw, &cut] {
        assert_eq!(seen(value, Framing::Raw), whole(value));
    }

    assert_eq!(seen(&frame, Framing::Json), parts);
    assert_eq!(seen(&envelope, Framing::Json), parts);
    assert_eq!(seen(&raw, Framing::Json), None);
    assert_eq!(seen(&cut, Framing::Json), None);
}

#[test]
fn retries_and_ids_are_read_from_the_headers() {
    let mut headers = headers();
    headers.push("x-message-id", "mine");
    headers.push("redis-idle-ms", "forged");
    let decoded = read(
        &encode(&headers, &Bytes::new(), Codec::Frame).unwrap(),
        Framing::Auto,
    );
    assert_eq!((decoded.header, &*decoded.message.id), (2, "mine"));
    assert_eq!(decoded.message.headers.find("redis-idle-ms"), None);
}

#[test]
fn a_raw_value_carries_no_headers() {
    let body = Bytes::from_static(b"\0\0\0\0");
    assert_eq!(
        encode(&Headers::default(), &body, Codec::Raw).unwrap(),
        body
    );
    assert_eq!(
        encode(&headers(), &body, Codec::Raw),
        Err(Error::Headers(2))
    );
}

fn framing() -> impl Strategy<Value = Framing> {
    prop::sample::select(vec![
        Framing::Auto,
        Framing::Frame,
        Framing::Raw,
        Framing::Json,
    ])
}

proptest! {
    #[test]
    fn any_value_is_read_without_a_panic(value in prop::collection::vec(any::<u8>(), 0..200), framing in framing()) {
        let decoded = read(&value, framing);
        prop_assert!(decoded.defect.is_none() || matches!(framing, Framing::Frame | Framing::Json));
    }

    #[test]
    fn a_written_value_reads_back(
        body in prop::collection::vec(any::<u8>(), 0..200),
        pairs in prop::collection::vec(("[a-z]{1,8}", prop::collection::vec(any::<u8>(), 0..20)), 0..5),
        framing in prop::sample::select(vec![Framing::Auto, Framing::Frame, Framing::Json]),
    ) {
        let headers = Headers::new(pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect());
        let body = Bytes::from(body);
        let decoded = read(&encode(&headers, &body, framing.codec()).unwrap(), framing);
        prop_assert_eq!(decoded.message.body, body);
        prop_assert_eq!(decoded.message.headers, headers);
        prop_assert_eq!(decoded.defect, None);
    }
}
