use proptest::prelude::*;

use super::*;
use crate::delivery::death::tests::text;
use crate::delivery::policy::{Reason, Rejection};

fn headers(value: impl Into<Bytes>) -> Headers {
    let mut headers = Headers::default();
    headers.push("X-Death", value);
    headers
}

fn history(deaths: &[(String, bool)]) -> History {
    let mut history = History::default();
    for (now, (queue, handled)) in deaths.iter().enumerate() {
        let rejection = Rejection {
            reason: Reason::ALL[now % Reason::ALL.len()],
            detail: String::new(),
            attempts: 0,
            handled: *handled,
        };
        history.record(queue, &rejection, now as u64, Some(now as u64));
    }
    history
}

proptest! {
    #[test]
    fn a_written_history_reads_back_and_fits(deaths in prop::collection::vec((text(1500), any::<bool>()), 1..50)) {
        let mut history = history(&deaths);
        let written = write(&history);
        prop_assert!(written.len() <= BYTES_MAX);
        let incoming = read(&headers(written));
        prop_assert!(!incoming.damaged);
        prop_assert_eq!(incoming.history.records(), history.records());
        // `overflowed` is not written: each reader of the header decides again.
        history = History::new(history.records().to_vec());
        prop_assert_eq!(incoming.history, history);
    }

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(value in prop::collection::vec(any::<u8>(), 0..400)) {
        read(&headers(value));
    }

    #[test]
    fn arbitrary_damage_is_read_without_a_panic(
        deaths in prop::collection::vec(("[a-z]{1,8}", any::<bool>()), 1..40),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut written = write(&history(&deaths)).to_vec();
        let place = at.index(written.len());
        written[place] = byte;
        read(&headers(written.clone()));
        written.truncate(cut.index(written.len()));
        let incoming = read(&headers(written));
        prop_assert!(incoming.damaged && incoming.history.is_empty());
    }
}

#[test]
fn the_shape_on_the_wire() {
    let history = history(&[
        ("orders".to_owned(), true),
        ("orders:dead".to_owned(), false),
    ]);
    assert_eq!(
        std::str::from_utf8(&write(&history)).unwrap(),
        r#"[{"queue":"orders:dead","reason":"max-deliveries","count":1,"first-time":1,"last-time":1,"original-expiration":1,"unrejected":true},{"queue":"orders","reason":"dropped","count":1,"first-time":0,"last-time":0,"original-expiration":0}]"#
    );
}

#[test]
fn an_invalid_record_is_left_out_and_reported() {
    for (value, records) in [
        ("", 0),
        ("{}", 0),
        ("[", 0),
        ("null", 0),
        (
            r#"[1,{"queue":"a","reason":"expired"},{"queue":2,"reason":"x"},null]"#,
            1,
        ),
        (r#"[{"queue":"a","reason":"expired","count":-1}]"#, 0),
        (r#"[{"queue":"a","reason":"expired","count":1e999}]"#, 0),
    ] {
        let incoming = read(&headers(value));
        assert!(incoming.damaged, "{value}");
        assert_eq!(incoming.history.records().len(), records, "{value}");
    }
    assert_eq!(read(&Headers::default()), Incoming::default());
    assert_eq!(read(&headers("[]")), Incoming::default());
}

#[test]
fn deep_and_long_headers_are_refused() {
    assert!(read(&headers("[".repeat(60_000))).damaged);
    let long = format!(
        "[{}]",
        vec![r#"{"queue":"a","reason":"b"}"#; 3000].join(",")
    );
    assert!(long.len() > READ_MAX);
    assert!(read(&headers(long)).history.is_empty());
}

#[test]
fn repeats_are_merged_and_foreign_records_make_no_cycle() {
    let incoming = read(&headers(
        r#"[{"queue":"a","reason":"rejected","count":3,"time":5,"exchange":"x","routing-keys":["k"]},
            {"queue":"a","reason":"rejected","count":18446744073709551615}]"#,
    ));
    assert!(!incoming.damaged);
    assert_eq!(incoming.history.records().len(), 1);
    assert_eq!(incoming.history.records()[0].count, u64::MAX);
    assert!(!incoming.history.cycles_to("a"));
}
