//! The example handlers of all languages acknowledge and drop the same messages of a real Redis, for
//! the same reasons, after as many starts.

use std::collections::BTreeMap;

use hostler_tests::guests::language;

use crate::runtime::e2e_scene::Scene;
use crate::sandbox::language_table::for_every_language;

for_every_language!(does_the_same_beside_redis);

/// The reason of a dead letter and a part of its detail; `None` if the message is acknowledged.
type Fate<'a> = Option<(&'a str, &'a str)>;

/// The handler of batches.
#[tokio::test(flavor = "multi_thread")]
async fn rust_batch() {
    does_the_same_beside_redis("rust-batch").await;
}

/// Starts that every message may have.
const CAP: u32 = 3;

async fn does_the_same_beside_redis(name: &str) {
    let scene = Scene::new().await;
    let mut expected = BTreeMap::new();
    let large = format!(
        r#"{{"id":"large","amount":1,"note":"{}"}}"#,
        "x".repeat((1 << 20) - 100)
    );
    // The body, its fate, its starts.
    let dropped = |detail| Some(("dropped", detail));
    let messages: [(&[u8], Fate<'_>, u32); 8] = [
        (br#"{"id":"good","amount":1}"#, None, 1),
        (large.as_bytes(), None, 1),
        (
            br#"{"id":"flaky","amount":1,"simulate":"payment-timeout","failures":2}"#,
            None,
            3,
        ),
        (
            br#"{"id":"down","amount":1,"simulate":"payment-timeout","failures":9}"#,
            Some(("max-deliveries", "")),
            CAP,
        ),
        (
            br#"{"id":"bug","amount":1,"simulate":"crash"}"#,
            Some(("max-deliveries", "trap")),
            CAP,
        ),
        (b"", dropped("not an order"), 1),
        (b"\xff\xfe{}", dropped("not an order"), 1),
        (
            "{\"id\":\"größe-☕\",\"amount\":1,\"status\":\"cancelled\"}".as_bytes(),
            dropped("order größe-☕: it was cancelled"),
            1,
        ),
    ];
    let many: Vec<String> = (0..200).map(|n| format!("h:x-header-{n}")).collect();
    for (body, fate, starts) in messages {
        let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", body];
        words.extend([
            &b"h:x-\xc3"[..],
            b"\xff\0\x80",
            b"h:tenant",
            "Zoë ☕".as_bytes(),
        ]);
        words.extend(many.iter().flat_map(|name| [name.as_bytes(), b"v"]));
        let id: String = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
        expected.insert(id, (body, fate, starts));
    }

    let options = scene
        .host()
        .cap(CAP)
        .flag("handler", &language(name).display().to_string())
        .flags("limit-compile-time=10m timeout=50s cpu=50s");
    let ended = options.finish().await;

    let look = scene.look().await;
    assert!(look.is_empty(), "{name}: {look:?}");
    for (id, (body, fate, starts)) in &expected {
        let what = format!(
            "{name}: {}",
            String::from_utf8_lossy(&body[..body.len().min(80)])
        );
        let dead = look.dead_letters_of(id);
        let Some((reason, detail)) = fate else {
            assert!(dead.is_empty(), "{what}: {dead:?}");
            continue;
        };
        let [dead] = dead[..] else {
            panic!("{what}: {dead:?}")
        };
        assert_eq!(dead.reason(), *reason, "{what}");
        let found = dead.header("x-dead-letter-detail").unwrap_or_default();
        match *reason {
            "dropped" => assert_eq!(found, *detail, "{what}"),
            // The runtime of each language describes a trap in its own way.
            _ => assert!(found.contains(detail), "{what}: {found}"),
        }
        assert_eq!(
            dead.header("x-dead-letter-attempts"),
            Some(&*starts.to_string()),
            "{what}"
        );
        assert_eq!(dead.field(b"_payload"), Some(*body), "{what}");
        assert_eq!(dead.field(b"h:x-\xc3"), Some(&b"\xff\0\x80"[..]), "{what}");
    }
    let summary = ended.json();
    let starts: u64 = expected
        .values()
        .map(|(_, _, starts)| u64::from(*starts))
        .sum();
    assert_eq!(summary["attempts"], starts, "{name}: {summary}");
    assert_eq!(summary["acked"], 3, "{name}: {summary}");
    assert_eq!(summary["faults"]["trap"], CAP, "{name}: {summary}");
}
