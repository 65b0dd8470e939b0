use proptest::prelude::*;

use super::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
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
    fn a_written_frame_reads_back(headers in headers(), payload in bytes(200)) {
        let frame = encode(&headers, &payload).unwrap();
        prop_assert_eq!(decode(&frame), Some((headers, payload.into())));
    }

    #[test]
    fn a_frame_that_was_read_is_written_unchanged(value in bytes(60), zeros in 0..6_usize) {
        // Zeros make small counts and lengths likely.
        let value = Bytes::from([&vec![0; zeros][..], &value].concat());
        if let Some((headers, payload)) = decode(&value) {
            prop_assert_eq!(encode(&headers, &payload).unwrap(), value);
        }
    }

    #[test]
    fn a_cut_frame_is_refused_or_has_a_shorter_payload(
        headers in headers(),
        payload in bytes(20),
        cut in any::<prop::sample::Index>(),
    ) {
        let frame = encode(&headers, &payload).unwrap();
        let cut = frame.slice(..cut.index(frame.len()));
        match decode(&cut) {
            Some((read, rest)) => {
                prop_assert_eq!(read, headers);
                prop_assert_eq!(&rest, &payload[..rest.len()]);
            }
            None => prop_assert!(cut.len() < frame.len() - payload.len()),
        }
    }

    #[test]
    fn a_changed_byte_is_read_without_a_panic(
        headers in headers(),
        payload in bytes(20),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = encode(&headers, &payload).unwrap().to_vec();
        let at = at.index(frame.len());
        frame[at] = byte;
        let frame = Bytes::from(frame);
        if let Some((headers, payload)) = decode(&frame) {
            prop_assert_eq!(encode(&headers, &payload).unwrap(), frame);
        }
    }
}

#[test]
fn the_layout_byte_for_byte() {
    let mut headers = Headers::default();
    headers.push("k", "vw");
    headers.push("K", "");
    let frame = encode(&headers, b"body").unwrap();
    assert_eq!(
        frame,
        &b"\0\0\0\x02\0\0\0\x01k\0\0\0\x02vw\0\0\0\x01K\0\0\0\0body"[..]
    );
}

#[test]
fn no_header_and_no_payload() {
    assert_eq!(
        decode(&Bytes::from_static(b"\0\0\0\0")),
        Some((Headers::default(), Bytes::new()))
    );
    // A raw payload that begins with four zero bytes is a well-formed frame.
    assert_eq!(
        decode(&Bytes::from_static(b"\0\0\0\0raw")),
        Some((Headers::default(), Bytes::from_static(b"raw")))
    );
}

#[test]
fn false_counts_and_lengths_are_refused() {
    for lie in [
        &b""[..],
        b"\0\0\0",
        b"{\"id\":1}",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x01",
        b"\0\0\0\x01\0\0\0\0",
        b"\0\0\0\x01\xff\xff\xff\xffk\0\0\0\0",
        b"\0\0\0\x01\0\0\0\x01k\xff\xff\xff\xff",
        b"\0\0\0\x01\0\0\0\x01k\0\0\0\x02v",
        b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\0",
    ] {
        assert_eq!(decode(&Bytes::from_static(lie)), None, "{lie:?}");
    }
}

#[test]
fn a_huge_false_count_allocates_nothing() {
    let mut value = vec![0xff; 4];
    value.resize(1 << 20, 0);
    assert_eq!(decode(&value.into()), None);
}

#[test]
fn parts_share_the_memory_of_the_value() {
    let mut headers = Headers::default();
    headers.push("k", "v");
    let frame = encode(&headers, b"body").unwrap();
    let (headers, payload) = decode(&frame).unwrap();
    let within = |part: &Bytes| frame.as_ptr_range().contains(&part.as_ptr());
    assert!(within(&payload) && within(headers.find("k").unwrap()));
}

#[test]
fn a_name_must_be_text() {
    let headers = Headers::new(vec![
        ("ok".into(), Bytes::new()),
        (Bytes::from_static(b"\xff"), Bytes::new()),
    ]);
    assert_eq!(encode(&headers, b""), Err(Error::Name(1)));
}
