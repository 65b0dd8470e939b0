use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::delivery::quoted::Text;

fn head() -> Head {
    Head {
        handler: "sha256:1".to_owned(),
        settings: "2".to_owned(),
        id: "1-1".to_owned(),
        queue: "orders".to_owned(),
        enqueued_ms: 5,
        headers: Some(Pairs(vec![("a".into(), Bytes::from_static(b"\xff"))])),
        attempt: 2,
        max_attempts: 3,
        messages: 1,
        seed: "seed".to_owned(),
    }
}

fn ask(shown: &str) -> Ask {
    Ask::new(shown, format!("{:032}", shown.len()))
}

fn ended() -> Ended {
    Ended {
        outcome: "fault".to_owned(),
        fault: Some("trap".to_owned()),
        detail: Some("unreachable".to_owned()),
    }
}

fn tape(budget: &Budget) -> Track {
    Track::Records(Tape::new(head(), Instant::now(), budget))
}

/// Record a call with this answer.
fn call(track: &Track, shown: &str, answer: impl Serialize) {
    let Track::Records(tape) = track else {
        panic!("a tape")
    };
    let now = Instant::now();
    let place = tape.begin(ask(shown), now);
    tape.answer(place, None, answer, now);
}

fn finish(track: &Track) -> Kept {
    let Track::Records(tape) = track else {
        panic!("a tape")
    };
    tape.finish(&ended(), true).unwrap()
}

fn read(kept: &Kept) -> Recording {
    assert!(kept.text().len() <= RECORDING_MAX, "{}", kept.text().len());
    Recording::read(kept.text().as_bytes()).unwrap()
}

/// Whether nothing counts in it.
fn is_empty(budget: &Budget) -> bool {
    let is_all = budget.take(RECORDINGS_MAX, RECORDINGS_MAX);
    if is_all {
        budget.give(RECORDINGS_MAX);
    }
    is_all
}

fn player(recording: &Recording) -> Player {
    Player::new(recording, None)
}

#[test]
fn an_attempt_that_runs_again_gets_the_same_answers() {
    let budget = Budget::default();
    let track = tape(&budget);
    for value in [1_790_000_000_000_000_000, 1_790_000_000_000_000_009, 7] {
        assert_eq!(track.reading(Reading::WallClock, || value), value);
    }
    track.reading(Reading::Cancelled, || 1);
    call(&track, "get a", json!({"Ok": [null]}));
    call(&track, "get b", Text(Bytes::from_static(b"\xff\0")));
    call(&track, "get a", json!({"Ok": ["later"]}));
    assert_eq!([track.random().1, track.random().1], [0, 1]);
    let kept = finish(&track);
    let recording = read(&kept);
    drop((kept, track));
    assert!(is_empty(&budget));

    assert_eq!(recording.ended, ended());
    let headers = recording.headers().unwrap();
    assert_eq!(headers.find("a").unwrap(), &b"\xff"[..]);
    let again = Track::Plays(player(&recording));
    let wall = || again.reading(Reading::WallClock, || panic!("live"));
    let times = [wall(), wall(), wall(), wall()];
    let recorded = [
        1_790_000_000_000_000_000,
        1_790_000_000_000_000_009,
        7,
        1_007,
    ];
    assert_eq!(times, recorded, "it goes on beyond the recording");
    assert_eq!(again.random(), ("seed", 0));
    let Track::Plays(player) = &again else {
        panic!("a player")
    };
    assert_eq!(player.next(&ask("get a")), Some(json!({"Ok": [null]})));
    assert_eq!(player.next(&ask("get b")), Some(json!({"base64": "/wA="})));
    assert_eq!(player.next(&ask("get a")), Some(json!({"Ok": ["later"]})));
    let played = player.played();
    assert_eq!(played.beyond, 1);
    assert_eq!(played.differences, []);
}

#[test]
fn a_call_that_is_not_recorded_is_named_with_the_one_in_its_place() {
    let track = tape(&Budget::default());
    call(&track, "get a", json!({"Ok": 1}));
    call(&track, "get b", json!({"Ok": 2}));
    let recording = read(&finish(&track));
    let player = player(&recording);
    assert!(player.next(&ask("get a")).is_some());
    assert!(player.next(&ask("get c")).is_none());
    let differences = player.played().differences;
    assert_eq!(
        differences,
        [
            Difference::Unrecorded(2, "get c".to_owned(), Some("get b".to_owned())),
            Difference::NotMade(2, "get b".to_owned()),
        ]
    );
}

#[test]
fn secrets_are_in_a_recording_by_name_only() {
    let track = tape(&Budget::default());
    let Track::Records(tape) = &track else {
        panic!("a tape")
    };
    tape.hide(&[("stripe".to_owned(), "s3cr3t\"".to_owned())]);
    assert_eq!(track.secret("read", "0ther".to_owned()), "0ther");
    let place = tape.begin(ask("POST https://a.test/s3cr3t\"/x"), Instant::now());
    let bytes = Text(Bytes::from_static(b"\xff0ther\0s3cr3t\"s3cr3t\""));
    let answer = json!({"headers": [["x", "Bearer s3cr3t\""]], "body": bytes_of(&bytes)});
    tape.answer(place, None, answer, Instant::now());
    assert_eq!(track.without_secrets("k=0ther"), "k=hidden-secret-read");
    let kept = finish(&track);
    for planted in ["s3cr3t", "0ther", "MHRoZXI"] {
        assert!(!kept.text().contains(planted), "{}", kept.text());
    }
    let recording = read(&kept);
    assert!(recording.hidden.iter().eq(["read", "stripe"]));
    let body = recording.calls[0].answer["body"]["base64"]
        .as_str()
        .unwrap();
    let body = STANDARD.decode(body).unwrap();
    assert_eq!(
        body,
        b"\xffhidden-secret-read\0hidden-secret-stripehidden-secret-stripe"
    );
    let again = Track::Plays(player(&recording));
    assert_eq!(again.secret("read", String::new()), "hidden-secret-read");
    assert!(again.has_read_secret());
}

fn bytes_of(text: &Text) -> Value {
    serde_json::to_value(text).unwrap()
}

#[test]
fn a_recording_is_bounded_and_says_how_much_is_left_out() {
    let budget = Budget::default();
    let many = tape(&budget);
    for number in 0..10_000 {
        call(
            &many,
            &format!("get {number}{}", "\u{1}".repeat(300)),
            json!({"Ok": [number]}),
        );
        many.reading(Reading::Monotonic, || number * 1_000);
    }
    let kept = finish(&many);
    let recording = read(&kept);
    let left_out = recording.left_out.unwrap() as usize;
    assert_eq!(recording.calls.len() + left_out, 10_000);
    assert!(recording.calls.len() > 50);

    let large = tape(&budget);
    call(&large, "get a", json!({"Ok": "x".repeat(100 << 20)}));
    call(&large, "get b", json!({"Ok": 1}));
    let recording = read(&finish(&large));
    assert_eq!((recording.calls.len(), recording.left_out), (1, Some(1)));
    assert_eq!(recording.calls[0].answer, Value::Null);

    let clock = tape(&budget);
    for number in 0..100_000_u64 {
        // As text, each difference is as long as it can be.
        clock.reading(Reading::WallClock, || (number % 2) << 63);
    }
    let recording = read(&finish(&clock));
    assert_eq!(recording.left_out, Some(0));
    drop((many, kept, large, clock));
    assert!(is_empty(&budget));
}

#[test]
fn all_recordings_of_a_handler_are_bounded_together() {
    let budget = Budget::default();
    let kept: Vec<Kept> = (0..1_000)
        .filter_map(|_| {
            let track = tape(&budget);
            call(&track, "get a", json!({"Ok": "x".repeat(200 << 10)}));
            let Track::Records(tape) = &track else {
                panic!("a tape")
            };
            tape.finish(&ended(), true)
        })
        .collect();
    let held: usize = kept.iter().map(|kept| kept.text().len()).sum();
    assert!(held <= RECORDINGS_MAX, "{held}");
    let whole = kept.iter().filter(|kept| read(kept).left_out.is_none());
    assert!(whole.count() > 200);
    drop(kept);
    assert!(is_empty(&budget));
}
