//! The messages that every example handler gets, whatever its language, and what it must answer.

use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::delivery::outcome::Outcome;

/// The languages whose examples `make test` builds, and with `all-languages` the others.
macro_rules! for_every_language {
    ($check:ident) => {
        for_every_language!($check: rust js ts python go c);
        #[cfg(feature = "all-languages")]
        for_every_language!($check: cpp zig);
    };
    ($check:ident: $($language:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $language() {
                $check(stringify!($language)).await;
            }
        )*
    };
}
pub(crate) use for_every_language;

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Headers,
    pub(crate) attempt: u32,
    pub(crate) answer: Answer,
}

/// What the example must answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// This outcome, and this line of log behind `attempt N: `.
    Is(Outcome, String),
    /// A trap.
    Trap,
    /// It refuses the body, or faults for want of stack: where the languages have none of their own
    /// bound for it.
    Refuses,
}

/// A mebibyte.
const LARGE: usize = 1 << 20;

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name, body: &[u8], answer| {
        rows.push(Row {
            name,
            body: body.to_vec(),
            headers: Headers::default(),
            attempt: 1,
            answer,
        });
    };

    add(
        "a good order",
        br#"{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}"#,
        ack(),
    );
    add(
        "the fields of a stream entry",
        br#"{"id":"1","amount":"5"}"#,
        ack(),
    );
    add("numbers", br#"{"id":1,"amount":5}"#, ack());
    add("an exponent", br#"{"id":1,"amount":2.5e3}"#, ack());
    add(
        "a small exponent, as text",
        br#"{"id":1,"amount":"25E-1"}"#,
        ack(),
    );
    add(
        "spaces everywhere",
        b" \t\r\n{ \"id\" :\n\"1\" , \"amount\"\t: 5 } \n",
        ack(),
    );
    add(
        "fields that nobody knows",
        br#"{"items":[{"n":[1,[2]]},null,true,"x"],"id":"1","amount":5,"":{}}"#,
        ack(),
    );
    add(
        "fields that are null",
        br#"{"id":"1","amount":5,"currency":null,"status":null,"simulate":null}"#,
        ack(),
    );
    add(
        "unicode",
        "{\"id\":\"größe-☕-漢字-😀\",\"amount\":1,\"note\":\"\u{10ffff}\u{7f}\"}".as_bytes(),
        ack(),
    );
    add(
        "an unknown status",
        br#"{"id":"1","amount":5,"status":"Cancelled"}"#,
        ack(),
    );

    add("an empty body", b"", not_an_order());
    add("only spaces", b"  \n", not_an_order());
    add("no JSON", b"hello", not_an_order());
    add(
        "JSON that was cut short",
        br#"{"id":"1","amount":5"#,
        not_an_order(),
    );
    add(
        "something behind it",
        br#"{"id":"1","amount":5}x"#,
        not_an_order(),
    );
    add("two of them", br#"{"id":"1","amount":5}{}"#, not_an_order());
    add(
        "a comma too many",
        br#"{"id":"1","amount":5,}"#,
        not_an_order(),
    );
    add(
        "quotes that are none",
        br"{'id':'1','amount':5}",
        not_an_order(),
    );
    add(
        "a comment",
        b"{\"id\":\"1\",\"amount\":5}//",
        not_an_order(),
    );
    add(
        "a line break in a text",
        b"{\"id\":\"1\n\",\"amount\":5}",
        not_an_order(),
    );
    add(
        "a zero byte",
        b"{\"id\":\"1\",\"amount\":5}\0",
        not_an_order(),
    );
    add(
        "a leading zero",
        br#"{"id":"1","amount":05}"#,
        not_an_order(),
    );
    add("a plus", br#"{"id":"1","amount":+5}"#, not_an_order());
    add(
        "not a number",
        br#"{"id":"1","amount":NaN}"#,
        not_an_order(),
    );
    add(
        "infinity",
        br#"{"id":"1","amount":-Infinity}"#,
        not_an_order(),
    );
    add("an array", br#"["1",5]"#, not_an_order());
    add("a number", b"5", not_an_order());
    add("a text", br#""order""#, not_an_order());
    add("null", b"null", not_an_order());
    add("an empty object", b"{}", not_an_order());
    add("no amount", br#"{"id":"1"}"#, not_an_order());
    add("no id", br#"{"amount":5}"#, not_an_order());
    add("an empty id", br#"{"id":"","amount":5}"#, not_an_order());
    add(
        "an id that is null",
        br#"{"id":null,"amount":5}"#,
        not_an_order(),
    );
    add(
        "an id that is true",
        br#"{"id":true,"amount":5}"#,
        not_an_order(),
    );
    add(
        "an amount that is true",
        br#"{"id":"1","amount":true}"#,
        not_an_order(),
    );
    add(
        "an amount in words",
        br#"{"id":"1","amount":"five"}"#,
        not_an_order(),
    );
    add(
        "an amount that is empty",
        br#"{"id":"1","amount":""}"#,
        not_an_order(),
    );
    add(
        "an amount that is half a number",
        br#"{"id":"1","amount":"5x"}"#,
        not_an_order(),
    );
    add(
        "a currency that is a number",
        br#"{"id":"1","amount":5,"currency":978}"#,
        not_an_order(),
    );
    add(
        "a status that is an object",
        br#"{"id":"1","amount":5,"status":{}}"#,
        not_an_order(),
    );
    add(
        "failures below zero",
        br#"{"id":"1","amount":5,"failures":-1}"#,
        not_an_order(),
    );
    add(
        "failures that are half",
        br#"{"id":"1","amount":5,"failures":0.5}"#,
        not_an_order(),
    );
    add(
        "failures in words",
        br#"{"id":"1","amount":5,"failures":"many"}"#,
        not_an_order(),
    );
    add("no UTF-8", b"\xff\xfe\x00\x80", not_an_order());
    add(
        "no UTF-8 in the id",
        b"{\"id\":\"\xff\",\"amount\":5}",
        not_an_order(),
    );
    add(
        "no UTF-8 where nobody looks",
        b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xc3(\"}",
        not_an_order(),
    );
    add(
        "UTF-8 that is too long",
        b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xc0\xaf\"}",
        not_an_order(),
    );
    add(
        "a surrogate as UTF-8",
        b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xed\xa0\x80\"}",
        not_an_order(),
    );
    add(
        "a byte order mark",
        b"\xef\xbb\xbf{\"id\":\"1\",\"amount\":5}",
        not_an_order(),
    );
    add("UTF-16", b"{\0\"\0i\0d\0\"\0:\x001\0}\0", not_an_order());
    add("nesting", &[b'['; 150], not_an_order());
    add("nesting without end", &[b'['; 100_000], Answer::Refuses);

    add(
        "nothing to charge",
        br#"{"id":"o-4","amount":0}"#,
        drop("order o-4: nothing to charge"),
    );
    add(
        "less than nothing",
        br#"{"id":"2","amount":"-5"}"#,
        drop("order 2: nothing to charge"),
    );
    add(
        "cancelled",
        br#"{"id":5,"amount":1,"status":"cancelled"}"#,
        drop("order 5: it was cancelled"),
    );
    add(
        "a long currency",
        br#"{"id":"o-6","amount":1,"currency":"euros"}"#,
        drop("order o-6: `euros` is not a currency"),
    );
    add(
        "a currency in small letters",
        br#"{"id":"o-6","amount":1,"currency":"eur"}"#,
        drop("order o-6: `eur` is not a currency"),
    );
    add(
        "no currency",
        br#"{"id":"o-6","amount":1,"currency":""}"#,
        drop("order o-6: `` is not a currency"),
    );
    add(
        "a currency of three characters",
        "{\"id\":\"o-6\",\"amount\":1,\"currency\":\"ÄÖÜ\"}".as_bytes(),
        drop("order o-6: `ÄÖÜ` is not a currency"),
    );
    add(
        "a currency and a line break",
        br#"{"id":"o-6","amount":1,"currency":"EUR\n"}"#,
        drop("order o-6: `EUR\n` is not a currency"),
    );
    add(
        "the first reason wins",
        br#"{"id":"1","amount":0,"currency":"x","status":"cancelled"}"#,
        drop("order 1: nothing to charge"),
    );
    add(
        "unicode in the reason",
        "{\"id\":\"größe-☕-漢字-😀\",\"amount\":0}".as_bytes(),
        drop("order größe-☕-漢字-😀: nothing to charge"),
    );
    add(
        "escapes in the reason",
        br#"{"id":"\u00e4\ud83d\ude00\"\\\/\t","amount":0}"#,
        drop("order ä😀\"\\/\t: nothing to charge"),
    );
    add(
        "a zero character in the reason",
        br#"{"id":"a\u0000b","amount":0}"#,
        drop("order a\0b: nothing to charge"),
    );
    add(
        "a bug",
        br#"{"id":"o-7","amount":1,"simulate":"crash"}"#,
        Answer::Trap,
    );

    let large = |begin: &str, end: &str| {
        let filling = "ö".repeat((LARGE - begin.len() - end.len()) / 2);
        let body = format!("{begin}{filling}{end}").into_bytes();
        assert!(body.len() > LARGE - 2 && body.len() <= LARGE);
        body
    };
    add(
        "1 MiB",
        &large(r#"{"id":"1","amount":5,"note":""#, r#""}"#),
        ack(),
    );
    add(
        "1 MiB of no order",
        &large(r#"{"note":""#, r#""}"#),
        not_an_order(),
    );
    add("1 MiB of bytes", &vec![0x80; LARGE], not_an_order());
    add("1 MiB of spaces", &vec![b' '; LARGE], not_an_order());

    // Attempts 1 to n: it fails so often as it says, and waits twice as long each time.
    let flaky = br#"{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":9}"#;
    for attempt in 1..=10 {
        rows.push(Row {
            name: "a payment that times out nine times",
            body: flaky.to_vec(),
            headers: Headers::default(),
            attempt,
            answer: if attempt <= 9 {
                again((100 << (attempt - 1)).min(10_000))
            } else {
                ack()
            },
        });
    }
    for (attempt, answer) in [(1, again(100)), (2, ack()), (i32::MAX as u32, ack())] {
        rows.push(Row {
            name: "a payment that times out once, by default",
            body: br#"{"id":"o-2","amount":1,"simulate":"payment-timeout"}"#.to_vec(),
            headers: Headers::default(),
            attempt,
            answer,
        });
    }
    rows.push(Row {
        name: "a payment that always times out",
        body: br#"{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":4294967295}"#
            .to_vec(),
        headers: Headers::default(),
        // QuickJS takes larger ones for negative ones.
        attempt: i32::MAX as u32,
        answer: again(10_000),
    });

    // Headers are of no concern to the handler, whatever they are: but they have to get there.
    for (name, headers) in headers() {
        rows.push(Row {
            name,
            body: br#"{"id":"o-8","amount":1}"#.to_vec(),
            headers,
            attempt: 1,
            answer: ack(),
        });
    }
    rows
}

/// Headers that are hard to hand over.
fn headers() -> Vec<(&'static str, Headers)> {
    let of = |pairs: Vec<(Vec<u8>, Vec<u8>)>| {
        let bytes = |(name, value)| (Bytes::from(name), Bytes::from(value));
        Headers::new(pairs.into_iter().map(bytes).collect())
    };
    let many = (0..200).map(|n| (format!("x-header-{n}").into_bytes(), vec![b'v'; n]));
    vec![
        ("200 headers", of(many.collect())),
        (
            "header bytes that are no UTF-8",
            of(vec![(b"x-\xff\xc3".to_vec(), b"\x80\xf0\x9f\0".to_vec())]),
        ),
        (
            "headers in unicode",
            of(vec![("x-größe".into(), "☕ 漢字 😀".into())]),
        ),
        ("an empty header", of(vec![(Vec::new(), Vec::new())])),
        (
            "a header of 64 KiB",
            of(vec![(b"x-large".to_vec(), vec![b'x'; 64 << 10])]),
        ),
    ]
}

pub(crate) fn ack() -> Answer {
    Answer::Is(Outcome::Ack, "charged".to_owned())
}

pub(crate) fn again(ms: u64) -> Answer {
    let line = format!("payment timed out, again in {ms} ms");
    Answer::Is(Outcome::NackRequeue(Some(Duration::from_millis(ms))), line)
}

pub(crate) fn drop(reason: &str) -> Answer {
    // What could act on a terminal is told escaped.
    let acts = |c: &char| c.is_control() && *c != '\t';
    let mut told = String::new();
    for c in reason.chars() {
        match Some(c).filter(acts) {
            Some(c) => told.extend(c.escape_default()),
            None => told.push(c),
        }
    }
    Answer::Is(Outcome::Drop(Some(told)), reason.to_owned())
}

pub(crate) fn not_an_order() -> Answer {
    drop("not an order")
}
