//! The messages that the example handlers of all languages get, and the answers that they must give.

use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::delivery::outcome::Outcome;

/// A test for each language: of those whose examples `make test` builds, and in a module `long` of the others.
macro_rules! for_every_language {
    ($check:ident) => {
        for_every_language!($check: rust js c; ts python go cpp zig);
    };
    ($check:ident: $($language:ident)*; $($other:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $language() {
                $check(stringify!($language)).await;
            }
        )*
        mod long {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $other() {
                    super::$check(stringify!($other)).await;
                }
            )*
        }
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

/// The answer that an example must give.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// This outcome, and this line of log behind `attempt N: `.
    Is(Outcome, String),
    /// A trap.
    Trap,
    /// A drop whose reason, and line of log, is this text and a random number.
    Draws(&'static str),
    /// It refuses the body, or overflows its stack: some languages have no bound of their own.
    Refuses,
}

/// A mebibyte.
const LARGE: usize = 1 << 20;

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: &'static str, body: &[u8], answer| {
        rows.push(Row {
            name,
            body: body.to_vec(),
            headers: Headers::default(),
            attempt: 1,
            answer,
        });
    };

    let good: [(&str, &[u8]); 10] = [
        (
            "a good order",
            br#"{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid"}"#,
        ),
        (
            "the fields of a stream entry",
            br#"{"id":"1","amount":"5"}"#,
        ),
        ("numbers", br#"{"id":1,"amount":5}"#),
        ("an exponent", br#"{"id":1,"amount":2.5e3}"#),
        ("a small exponent, as text", br#"{"id":1,"amount":"25E-1"}"#),
        (
            "spaces everywhere",
            b" \t\r\n{ \"id\" :\n\"1\" , \"amount\"\t: 5 } \n",
        ),
        (
            "unknown fields",
            br#"{"items":[{"n":[1,[2]]},null,true,"x"],"id":"1","amount":5,"":{}}"#,
        ),
        (
            "fields that are null",
            br#"{"id":"1","amount":5,"currency":null,"status":null,"simulate":null}"#,
        ),
        (
            "unicode",
            "{\"id\":\"größe-☕-漢字-😀\",\"amount\":1,\"note\":\"\u{10ffff}\u{7f}\"}".as_bytes(),
        ),
        (
            "an unknown status",
            br#"{"id":"1","amount":5,"status":"Cancelled"}"#,
        ),
    ];
    for (name, body) in good {
        add(name, body, ack());
    }
    let bad: [(&str, &[u8]); 42] = [
        ("an empty body", b""),
        ("only spaces", b"  \n"),
        ("no JSON", b"hello"),
        ("JSON that was cut short", br#"{"id":"1","amount":5"#),
        ("text behind the JSON", br#"{"id":"1","amount":5}x"#),
        ("two orders", br#"{"id":"1","amount":5}{}"#),
        ("a comma too many", br#"{"id":"1","amount":5,}"#),
        ("single quotes", br"{'id':'1','amount':5}"),
        ("a comment", b"{\"id\":\"1\",\"amount\":5}//"),
        ("a line break in a text", b"{\"id\":\"1\n\",\"amount\":5}"),
        ("a zero byte", b"{\"id\":\"1\",\"amount\":5}\0"),
        ("a leading zero", br#"{"id":"1","amount":05}"#),
        ("a plus", br#"{"id":"1","amount":+5}"#),
        ("not a number", br#"{"id":"1","amount":NaN}"#),
        ("infinity", br#"{"id":"1","amount":-Infinity}"#),
        ("an array", br#"["1",5]"#),
        ("a number", b"5"),
        ("a text", br#""order""#),
        ("null", b"null"),
        ("an empty object", b"{}"),
        ("no amount", br#"{"id":"1"}"#),
        ("no id", br#"{"amount":5}"#),
        ("an empty id", br#"{"id":"","amount":5}"#),
        ("an id that is null", br#"{"id":null,"amount":5}"#),
        ("an id that is true", br#"{"id":true,"amount":5}"#),
        ("an amount that is true", br#"{"id":"1","amount":true}"#),
        ("an amount in words", br#"{"id":"1","amount":"five"}"#),
        ("an amount that is empty", br#"{"id":"1","amount":""}"#),
        (
            "an amount that is half a number",
            br#"{"id":"1","amount":"5x"}"#,
        ),
        (
            "a currency that is a number",
            br#"{"id":"1","amount":5,"currency":978}"#,
        ),
        (
            "a status that is an object",
            br#"{"id":"1","amount":5,"status":{}}"#,
        ),
        (
            "failures below zero",
            br#"{"id":"1","amount":5,"failures":-1}"#,
        ),
        (
            "failures that are half",
            br#"{"id":"1","amount":5,"failures":0.5}"#,
        ),
        (
            "failures in words",
            br#"{"id":"1","amount":5,"failures":"many"}"#,
        ),
        ("no UTF-8", b"\xff\xfe\x00\x80"),
        ("no UTF-8 in the id", b"{\"id\":\"\xff\",\"amount\":5}"),
        (
            "no UTF-8 in an unknown field",
            b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xc3(\"}",
        ),
        (
            "UTF-8 that is too long",
            b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xc0\xaf\"}",
        ),
        (
            "a surrogate as UTF-8",
            b"{\"id\":\"1\",\"amount\":5,\"note\":\"\xed\xa0\x80\"}",
        ),
        (
            "a byte order mark",
            b"\xef\xbb\xbf{\"id\":\"1\",\"amount\":5}",
        ),
        ("UTF-16", b"{\0\"\0i\0d\0\"\0:\x001\0}\0"),
        ("nesting", &[b'['; 150]),
    ];
    for (name, body) in bad {
        add(name, body, not_an_order());
    }
    add("nesting without end", &[b'['; 100_000], Answer::Refuses);
    let dropped: [(&str, &[u8], &str); 12] = [
        (
            "nothing to charge",
            br#"{"id":"o-4","amount":0}"#,
            "order o-4: nothing to charge",
        ),
        (
            "less than nothing",
            br#"{"id":"2","amount":"-5"}"#,
            "order 2: nothing to charge",
        ),
        (
            "cancelled",
            br#"{"id":5,"amount":1,"status":"cancelled"}"#,
            "order 5: it was cancelled",
        ),
        (
            "a long currency",
            br#"{"id":"o-6","amount":1,"currency":"euros"}"#,
            "order o-6: `euros` is not a currency",
        ),
        (
            "a currency in small letters",
            br#"{"id":"o-6","amount":1,"currency":"eur"}"#,
            "order o-6: `eur` is not a currency",
        ),
        (
            "no currency",
            br#"{"id":"o-6","amount":1,"currency":""}"#,
            "order o-6: `` is not a currency",
        ),
        (
            "a currency of three characters",
            "{\"id\":\"o-6\",\"amount\":1,\"currency\":\"ÄÖÜ\"}".as_bytes(),
            "order o-6: `ÄÖÜ` is not a currency",
        ),
        (
            "a currency and a line break",
            br#"{"id":"o-6","amount":1,"currency":"EUR\n"}"#,
            "order o-6: `EUR\n` is not a currency",
        ),
        (
            "the first reason wins",
            br#"{"id":"1","amount":0,"currency":"x","status":"cancelled"}"#,
            "order 1: nothing to charge",
        ),
        (
            "unicode in the reason",
            "{\"id\":\"größe-☕-漢字-😀\",\"amount\":0}".as_bytes(),
            "order größe-☕-漢字-😀: nothing to charge",
        ),
        (
            "escapes in the reason",
            br#"{"id":"\u00e4\ud83d\ude00\"\\\/\t","amount":0}"#,
            "order ä😀\"\\/\t: nothing to charge",
        ),
        (
            "a zero character in the reason",
            br#"{"id":"a\u0000b","amount":0}"#,
            "order a\0b: nothing to charge",
        ),
    ];
    for (name, body, reason) in dropped {
        add(name, body, drop(reason));
    }
    add(
        "a bug",
        br#"{"id":"o-7","amount":1,"simulate":"crash"}"#,
        Answer::Trap,
    );
    add(
        "a random number",
        br#"{"id":"o-9","amount":1,"simulate":"random"}"#,
        Answer::Draws("order o-9: drew "),
    );
    let large = |begin: &str, end: &str| {
        let filling = "ö".repeat((LARGE - begin.len() - end.len()) / 2);
        let body = format!("{begin}{filling}{end}").into_bytes();
        assert!(body.len() > LARGE - 2 && body.len() <= LARGE);
        body
    };
    let order = large(r#"{"id":"1","amount":5,"note":""#, r#""}"#);
    add("1 MiB", &order, ack());
    let no_order = large(r#"{"note":""#, r#""}"#);
    add("1 MiB of no order", &no_order, not_an_order());
    add("1 MiB of bytes", &vec![0x80; LARGE], not_an_order());
    add("1 MiB of spaces", &vec![b' '; LARGE], not_an_order());

    // Each attempt fails as the body says, and each wait is twice as long as the one before.
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
        // QuickJS reads larger numbers as negative ones.
        attempt: i32::MAX as u32,
        answer: again(10_000),
    });

    // The handler ignores headers, but they must reach it.
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

/// Headers that are hard to pass on.
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

/// The number that a handler drew, if the reason is this text and a number.
pub(crate) fn drawn<'a>(before: &str, outcome: &'a Outcome) -> Option<&'a str> {
    let Outcome::Drop(Some(reason)) = outcome else {
        return None;
    };
    let number = reason.strip_prefix(before)?;
    number.parse::<f64>().is_ok().then_some(number)
}

pub(crate) fn ack() -> Answer {
    Answer::Is(Outcome::Ack, "charged".to_owned())
}

pub(crate) fn again(ms: u64) -> Answer {
    let line = format!("payment timed out, again in {ms} ms");
    Answer::Is(Outcome::NackRequeue(Some(Duration::from_millis(ms))), line)
}

pub(crate) fn drop(reason: &str) -> Answer {
    // The host escapes characters that could control a terminal.
    let acts = |c: &char| c.is_control() && *c != '\t';
    let mut escaped = String::new();
    for c in reason.chars() {
        match Some(c).filter(acts) {
            Some(c) => escaped.extend(c.escape_default()),
            None => escaped.push(c),
        }
    }
    Answer::Is(Outcome::Drop(Some(escaped)), reason.to_owned())
}

pub(crate) fn not_an_order() -> Answer {
    drop("not an order")
}
