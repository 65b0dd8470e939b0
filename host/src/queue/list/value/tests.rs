use super::*;
use crate::delivery::attempt::{AttemptCounts, DeliveryLimit, Lane, NextStart};
use crate::delivery::hold::HoldLimits;

const HOLDS: HoldLimits = HoldLimits {
    max: 2,
    max_age: Duration::from_secs(60),
};

const CAP_5: DeliveryLimit = DeliveryLimit {
    cap: Some(5),
    accounting: Accounting::Lazy,
    at_most_once: false,
    holds: HOLDS,
};

fn values(framing: Framing, accounting: Accounting) -> Values {
    Values {
        journals: false,
        name: "jobs".into(),
        framing,
        accounting,
        ttl: AtomicTtl::new(None),
        time: Arc::default(),
    }
}

fn lazy() -> Values {
    values(Framing::Auto, Accounting::Lazy)
}

fn token(number: u8, framed: bool) -> Token {
    let mut token = [0; 16];
    token[7] = u8::from(framed);
    token[15] = number;
    Token(token)
}

/// The token of a value that a host wrote.
fn marked(number: u8) -> Token {
    let mut token = token(number, false);
    token.0[7] = 2;
    token
}

fn framed(headers: &[(&'static str, &'static str)], payload: &'static str) -> Bytes {
    let headers = headers
        .iter()
        .map(|(n, v)| {
            (
                Bytes::from_static(n.as_bytes()),
                Bytes::from_static(v.as_bytes()),
            )
        })
        .collect();
    frame::encode(&Headers::new(headers), payload.as_bytes()).unwrap()
}

fn headers_of(value: &Bytes) -> Headers {
    frame::decode(value).unwrap().0
}

fn next_start(claim: &Claim, limit: DeliveryLimit) -> NextStart {
    limit.next_start(counts(claim))
}

fn counts(claim: &Claim) -> AttemptCounts {
    AttemptCounts {
        header: claim.header,
        native: claim.native,
        held: claim.held.count,
        fresh: claim.origin == Origin::Fresh,
    }
}

fn attempt(claim: &Claim, limit: DeliveryLimit) -> Option<(u32, bool)> {
    match next_start(claim, limit) {
        NextStart::Start(start) => Some((start.attempt, start.record.is_some())),
        NextStart::Exhausted { .. } => None,
    }
}

#[test]
fn a_plain_value_is_fresh_and_costs_no_record() {
    for limit in [CAP_5, DeliveryLimit::default()] {
        let claim = lazy().claim(token(1, false), Bytes::from_static(b"hi"), None);
        assert_eq!(claim.origin, Origin::Fresh);
        assert_eq!(attempt(&claim, limit), Some((1, false)));
        assert_eq!(&*claim.message.id, "00000000000000000000000000000001");
        assert_eq!(claim.message.body, "hi");
    }
}

#[test]
fn a_requeue_carries_the_count_the_id_and_no_suspicion() {
    let values = lazy();
    let claim = values.claim(token(1, false), Bytes::from_static(b"hi"), None);
    // Started once: the hand-out stands for it.
    let Back::Charged(written) = values.back(&claim, 1, false).unwrap() else {
        panic!("it started");
    };
    assert_eq!(written.form, Form::default());
    let headers = headers_of(&written.value);
    assert_eq!(
        headers.find_str(MESSAGE_ID),
        Some("00000000000000000000000000000001")
    );
    assert_eq!(headers.find_str(RETRY_COUNT), Some("1"));
    assert_eq!(headers.find_str(RUSTSTREAM_RETRY_COUNT), Some("1"));

    let again = values.claim(token(2, false), written.value, None);
    assert_eq!(again.origin, Origin::Returned);
    assert_eq!(again.message.id, claim.message.id);
    assert_eq!(attempt(&again, CAP_5), Some((2, true)));
    // Two more starts here: recorded as 1 and 2.
    assert_eq!(values.starts(&again, 2), 3);
    let Back::Charged(written) = values.back(&again, 2, false).unwrap() else {
        panic!("it started");
    };
    assert_eq!(headers_of(&written.value).retry_count(), 3);
}

#[test]
fn a_value_that_never_started_goes_back_byte_for_byte() {
    let values = lazy();
    for value in [
        Bytes::from_static(b"hi"),
        framed(&[("x-retry-count", "3"), ("A", "b")], "hi"),
        framed(&[("x-retry-count", "3"), ("x-hostler-crashes", "2")], "hi"),
    ] {
        let claim = values.claim(token(1, false), value.clone(), None);
        let before = if claim.origin == Origin::Fresh {
            0
        } else {
            claim.native
        };
        let Back::Unchanged(written) = values.back(&claim, before, false).unwrap() else {
            panic!("it never started");
        };
        assert_eq!(written.value, value);
    }
}

#[test]
fn recovery_charges_what_may_have_started_and_nothing_else() {
    let values = lazy();
    let recovered = |value: Bytes, mark| {
        let written = values.recovered(marked(1), value, mark).unwrap();
        let (headers, payload) = list::parts(&written.value, Framing::Auto).unwrap();
        assert_eq!(payload, "hi");
        (headers.retry_count(), crashes(marked(1), &headers))
    };
    // Fresh: its hand-out may have been its first start.
    assert_eq!(recovered(Bytes::from_static(b"hi"), None), (1, 1));
    // At a cap of 1 even that start is recorded, and then as 2.
    assert_eq!(recovered(Bytes::from_static(b"hi"), Some(2)), (2, 1));
    // Every start of what came with a count is recorded: no mark, no start.
    let nacked = framed(&[("x-retry-count", "2")], "hi");
    assert_eq!(recovered(nacked.clone(), None), (2, 0));
    assert_eq!(recovered(nacked, Some(3)), (3, 1));
    let suspect = framed(&[("x-retry-count", "2"), ("x-hostler-crashes", "1")], "hi");
    assert_eq!(recovered(suspect.clone(), None), (2, 1));
    assert_eq!(recovered(suspect, Some(3)), (3, 2));
}

#[test]
fn suspects_run_where_they_must_and_never_too_often() {
    let values = lazy();
    let of = |starts: &'static str, crashes: &'static str, cap: u32| {
        let value = framed(
            &[("x-retry-count", starts), ("x-hostler-crashes", crashes)],
            "hi",
        );
        let claim = values.claim(marked(1), value, Some(Duration::from_secs(40)));
        assert!(matches!(claim.origin, Origin::Orphan { .. }));
        assert_eq!(
            claim.message.headers.find_str(REDIS_DELIVERY_COUNT),
            Some(starts)
        );
        assert_eq!(claim.message.headers.find_str(REDIS_IDLE_MS), Some("40000"));
        let limit = DeliveryLimit {
            cap: Some(cap),
            ..CAP_5
        };
        let lane = limit.orphan_lane(counts(&claim));
        (attempt(&claim, limit).map(|(n, _)| n), lane)
    };
    assert_eq!(of("1", "1", 5), (Some(2), Lane::Normal));
    assert_eq!(of("1", "1", 2), (Some(2), Lane::Isolated));
    assert_eq!(of("2", "2", 5), (Some(3), Lane::Isolated));
    assert_eq!(of("4", "1", 5), (Some(5), Lane::Isolated));
    assert_eq!(of("5", "1", 5).0, None);
    assert_eq!(of("2", "1", 2).0, None);
    // At a cap of 1: handed out and never recorded, so never started; recorded, so used up.
    assert_eq!(of("1", "1", 1), (Some(1), Lane::Normal));
    assert_eq!(of("2", "1", 1).0, None);
}

#[test]
fn counts_of_producers_use_up_the_cap() {
    let values = lazy();
    for (count, next) in [
        ("0", Some(1)),
        ("4", Some(5)),
        ("5", None),
        ("4000000000", None),
    ] {
        for name in [RETRY_COUNT, RUSTSTREAM_RETRY_COUNT] {
            let claim = values.claim(token(1, false), framed(&[(name, count)], "hi"), None);
            assert_eq!(
                attempt(&claim, CAP_5).map(|(n, _)| n),
                next,
                "{name} {count}"
            );
        }
    }
}

#[test]
fn a_crash_that_only_a_producer_tells_of_makes_no_suspect() {
    let headers = &[("x-retry-count", "3"), ("x-hostler-crashes", "2")];
    let told = framed(headers, "hi");
    // On the list, or published for later; in a list of raw values that one is framed as well.
    for (framing, framed) in [
        (Framing::Auto, false),
        (Framing::Frame, false),
        (Framing::Json, false),
        (Framing::Raw, true),
    ] {
        let values = values(framing, Accounting::Lazy);
        let claim = values.claim(token(1, framed), told.clone(), None);
        assert_eq!((claim.origin, claim.header), (Origin::Returned, 3));
        assert_eq!(claim.message.headers.find(CRASHES), None);
        // It goes back, and is claimed again: from the list that producers write to, or without it.
        let Back::Unchanged(back) = values.back(&claim, 0, false).unwrap() else {
            panic!("it never started");
        };
        assert_eq!(
            back.form,
            Form {
                framed,
                marked: false
            }
        );
        assert_eq!(headers_of(&back.value).find(CRASHES).is_some(), !framed);
        // Its host dies: only that counts.
        let unstarted = values.recovered(token(1, framed), told.clone(), None);
        assert!(!unstarted.unwrap().form.marked);
        let started = values.recovered(token(1, framed), told.clone(), Some(4));
        let started = started.unwrap();
        assert!(started.form.marked);
        let (headers, _) = list::parts(
            &started.value,
            match framing {
                Framing::Raw => Framing::Frame,
                framing => framing,
            },
        )
        .unwrap();
        assert_eq!(headers.find_str(CRASHES), Some("1"));
    }
}

#[test]
fn a_suspect_that_is_left_to_another_host_stays_a_suspect() {
    for framing in [Framing::Auto, Framing::Raw] {
        let values = values(framing, Accounting::Lazy);
        let hi = Bytes::from_static(b"hi");
        let taken = values.recovered(token(1, false), hi, None).unwrap();
        let here = Token([
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            2 + u8::from(taken.form.framed),
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            2,
        ]);
        let suspect = values.claim(here, taken.value, Some(Duration::ZERO));
        assert!(matches!(suspect.origin, Origin::Orphan { .. }));
        let Back::Unchanged(left) = values.back(&suspect, 0, false).unwrap() else {
            panic!("it never started here");
        };
        assert!(left.form.marked);
        let beside = Token([0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3]);
        let again = values.claim(beside, left.value, None);
        assert!(matches!(again.origin, Origin::Orphan { .. }));
        assert_eq!(again.message.body, "hi");
    }
}

#[test]
fn exact_accounting_charges_only_recorded_starts() {
    let values = values(Framing::Auto, Accounting::Exact);
    let exact = DeliveryLimit {
        cap: Some(3),
        accounting: Accounting::Exact,
        at_most_once: false,
        holds: HOLDS,
    };
    let value = Bytes::from_static(b"hi");
    let claim = values.claim(token(1, false), value.clone(), None);
    assert_eq!(attempt(&claim, exact), Some((1, true)));
    // Recorded as 2: one start.
    assert_eq!(values.starts(&claim, 2), 1);
    let unstarted = values
        .recovered(token(1, false), value.clone(), None)
        .unwrap();
    assert_eq!(unstarted.value, value);
    let started = values.recovered(token(1, false), value, Some(1)).unwrap();
    assert!(started.form.marked);
    let suspect = values.claim(marked(2), started.value, Some(Duration::ZERO));
    assert_eq!(attempt(&suspect, exact), Some((2, true)));
    assert_eq!(values.starts(&suspect, 3), 2);
}

#[test]
fn raw_values_are_framed_only_where_they_carry_headers() {
    let values = values(Framing::Raw, Accounting::Lazy);
    // A raw value that happens to be a frame.
    let raw = framed(&[("x-retry-count", "9")], "hi");
    let claim = values.claim(token(1, false), raw.clone(), None);
    assert_eq!((claim.origin, &claim.message.body), (Origin::Fresh, &raw));
    let Back::Unchanged(back) = values.back(&claim, 0, false).unwrap() else {
        panic!("it never started");
    };
    assert_eq!((&back.value, back.form), (&raw, Form::default()));
    let Back::Charged(again) = values.back(&claim, 1, false).unwrap() else {
        panic!("it started");
    };
    assert!(again.form.framed && !again.form.marked);
    let claim = values.claim(token(2, true), again.value, None);
    assert_eq!((claim.header, &claim.message.body), (1, &raw));
    let left = values
        .recovered(token(3, false), raw.clone(), None)
        .unwrap();
    assert_eq!(left.form, Form::RETRY);
    assert_eq!(
        values.claim(token(4, true), left.value, None).message.body,
        raw
    );
}

#[test]
fn a_malformed_value_stays_as_it_is() {
    let values = values(Framing::Frame, Accounting::Lazy);
    let value = Bytes::from_static(b"\0\0\0\x09");
    let claim = values.claim(token(1, false), value.clone(), None);
    assert!(claim.defect.is_some());
    assert_eq!(
        values
            .recovered(token(1, false), value.clone(), None)
            .unwrap()
            .value,
        value
    );
    assert_eq!(values.parts(&claim), (Headers::default(), value));
}

/// A message that has started once carries its id when it leaves the host, also uncharged.
#[test]
fn a_rerun_that_goes_back_keeps_its_id_and_costs_no_start() {
    for values in [lazy(), values(Framing::Raw, Accounting::Lazy)] {
        let claim = values.claim(token(1, false), Bytes::from_static(b"hi"), None);
        let Back::Unchanged(written) = values.back(&claim, 0, true).unwrap() else {
            panic!("it is not charged");
        };
        let other = token(2, written.form.framed);
        let again = values.claim(other, written.value, None);
        assert_eq!(again.message.id, claim.message.id);
        assert_eq!(again.message.body, "hi");
        assert_eq!(again.origin, Origin::Fresh);
        assert_eq!(attempt(&again, CAP_5), Some((1, false)));
        assert_eq!(again.message.headers.find(RETRY_COUNT), None);
    }
}

#[test]
fn a_held_start_is_another_start_of_the_same_attempt() {
    for accounting in [Accounting::Lazy, Accounting::Exact] {
        // With a cap of 3, the third attempt is the last one: its count runs ahead.
        for cap in [3, 5] {
            let values = values(Framing::Auto, accounting);
            let limit = DeliveryLimit {
                cap: Some(cap),
                accounting,
                ..CAP_5
            };
            let mut claim =
                values.claim(token(1, false), framed(&[(RETRY_COUNT, "2")], "hi"), None);
            for holds in 0..3 {
                assert_eq!(claim.held.count, holds);
                assert_eq!(attempt(&claim, limit), Some((3, true)), "{cap} {holds}");
                let NextStart::Start(start) = next_start(&claim, limit) else {
                    panic!("it has a start left");
                };
                let write = start.record.unwrap();
                let back = |keep| values.back(&claim, keep, false).unwrap();
                // Unstarted it goes back as it was; charged it has no other start with this number.
                assert!(matches!(back(claim.native), Back::Unchanged(_)));
                let Back::Charged(written) = back(write) else {
                    panic!("it started");
                };
                let charged = values.claim(token(2, false), written.value, None);
                assert_eq!(
                    attempt(&charged, limit).map(|(n, _)| n),
                    (cap > 3).then_some(4)
                );
                let Back::Charged(written) = values.held(&claim, 3).unwrap() else {
                    panic!("it started");
                };
                assert_eq!(headers_of(&written.value).retry_count(), 2);
                claim = values.claim(token(3, false), written.value, None);
                assert_eq!(claim.message.headers.find(HELD), None);
            }
        }
    }
}

#[test]
fn a_fresh_value_that_was_held_costs_no_record_either() {
    let values = lazy();
    let fresh = values.claim(token(1, false), Bytes::from_static(b"hi"), None);
    let Back::Charged(written) = values.held(&fresh, 1).unwrap() else {
        panic!("it started");
    };
    let held = values.claim(token(2, false), written.value.clone(), None);
    assert_eq!(attempt(&held, CAP_5), Some((1, false)));
    assert_eq!(held.message.id, fresh.message.id);
    // Its host dies: the hand-out is charged.
    let taken = values.recovered(marked(3), written.value, None).unwrap();
    let taken = values.claim(marked(3), taken.value, Some(Duration::ZERO));
    assert_eq!(attempt(&taken, CAP_5), Some((2, true)));
    assert_eq!((taken.held.count, taken.native), (1, 2));
}
