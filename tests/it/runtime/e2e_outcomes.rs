//! The built binary on a stream: the effect of each outcome.

use hostler_tests::checker::{DeadLetter, Look};
use hostler_tests::guests::guest;
use hostler_tests::redis::eventually;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

#[tokio::test]
async fn a_handler_that_nacks_for_ever_starts_exactly_max_deliveries_times() {
    let mut scene = Scene::new().await;
    for cap in 1..=4_u32 {
        let id = scene.publish("nack:0").await;
        let backoff = scene.publish("nack").await;
        let ended = scene
            .host()
            .cap(cap)
            .flag("backoff-first", "5ms")
            .finish()
            .await;
        let wanted: Vec<u32> = (1..=cap).collect();
        assert_eq!(ended.witness().attempts(&id), wanted);
        assert_eq!(ended.witness().attempts(&backoff), wanted);
        let look = scene.look().await;
        assert!(look.is_empty() && look.parked.is_empty(), "{look:?}");
        let dead = look.dead_letters_of(&id);
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].reason(), "max-deliveries");
        let attempts = cap.to_string();
        assert_eq!(dead[0].header("x-dead-letter-attempts"), Some(&*attempts));
        assert_eq!(
            ended.json(),
            json!({
                "attempts": 2 * cap, "acked": 0, "requeued": 2 * (cap - 1), "discarded": 0,
                "dead_lettered": {"max-deliveries": 2}, "faults": {}, "orphans_recovered": 0,
                "swaps": 0,
            })
        );
    }
}

#[tokio::test]
async fn a_dead_letter_is_the_message_byte_for_byte() {
    let scene = Scene::new().await;
    // The first step of the script is a nack. Every other byte follows.
    let mut body = b"nack:0;".to_vec();
    body.extend((0..=255_u8).filter(|byte| !b";,+".contains(byte)));
    let long = vec![b'v'; 70_000];
    let fields: [(&[u8], &[u8]); 9] = [
        (b"h:X-Tenant", b"Acme \xff\x00 GmbH"),
        (b"_payload", &body),
        (b"h:x-tenant", b"the second of its name"),
        (b"h:", b"a name without a name"),
        (b"h:caf\xc3\xa9 \xfe", b""),
        (b"unknown", b"a field that is no header"),
        (b"h:long", &long),
        (b"unknown", b"twice"),
        (
            b"h:traceparent",
            b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
    ];
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*"];
    words.extend(fields.iter().flat_map(|(name, value)| [*name, *value]));
    let id: String = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
    let ended = scene.host().cap(3).finish().await;
    assert_eq!(ended.witness().attempts(&id), [1, 2, 3]);
    let dead = DeadLetter::all(&scene.raw, "orders:dead").await;
    assert_eq!(dead.len(), 1);
    // Every field of the original, in its place. The fields of the host follow.
    let original: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(dead[0].fields[..original.len()], original);
    let added = &dead[0].fields[original.len()..];
    for (name, _) in added {
        let name = String::from_utf8_lossy(name);
        let owned = [
            "h:x-dead-letter-",
            "h:x-first-death-",
            "h:x-last-death-",
            "h:x-death",
        ];
        let is_owned = owned.iter().any(|prefix| name.starts_with(prefix));
        assert!(is_owned || name == "h:x-message-id", "{name}");
    }
    let header = |name| dead[0].header(name).unwrap();
    assert_eq!(header("x-message-id"), id);
    assert_eq!(header("x-dead-letter-source"), "orders");
    assert_eq!(header("x-dead-letter-source-id"), id);
    assert_eq!(header("x-dead-letter-group"), "workers");
    assert_eq!(header("x-dead-letter-attempts"), "3");
    assert_eq!(header("x-dead-letter-reason"), "max-deliveries");
    assert!(header("x-dead-letter-handler").starts_with("sha256:"));
    let death: serde_json::Value = serde_json::from_str(header("x-death")).unwrap();
    assert_eq!(death[0]["queue"], "orders");
    assert_eq!(death[0]["reason"], "max-deliveries");
    assert_eq!(death[0]["count"], 1);
}

#[tokio::test]
async fn retry_counts_of_incoming_messages_are_charged() {
    let mut scene = Scene::new().await;
    let one = scene
        .publish_with("nack:0", &[("x-retry-count", "2")])
        .await;
    let other = scene
        .publish_with("nack:0", &[("X-Ruststream-Retry-Count", "3")])
        .await;
    let both = scene
        .publish_with(
            "nack:0",
            &[("x-retry-count", "1"), ("x-ruststream-retry-count", "4")],
        )
        .await;
    let spent = scene.publish_with("ack", &[("x-retry-count", "5")]).await;
    let beyond = scene
        .publish_with("ack", &[("x-ruststream-retry-count", "99999999999")])
        .await;
    let nonsense = scene
        .publish_with("nack:0,ack", &[("x-retry-count", "many")])
        .await;
    let ended = scene.host().cap(5).finish().await;
    let (look, witness) = scene.check(&[ended]).await;
    assert_eq!(witness.attempts(&one), [3, 4, 5]);
    assert_eq!(witness.attempts(&other), [4, 5]);
    assert_eq!(witness.attempts(&both), [5]);
    assert_eq!(witness.starts(&spent), 0, "no start was left");
    assert_eq!(witness.starts(&beyond), 0, "no start was left");
    assert_eq!(witness.attempts(&nonsense), [1, 2]);
    for id in [&one, &other, &both, &spent] {
        let dead = look.dead_letters_of(id);
        assert_eq!(dead[0].header("x-dead-letter-attempts"), Some("5"), "{id}");
        assert_eq!(dead[0].reason(), "max-deliveries");
        // Its next queue counts anew.
        assert_eq!(dead[0].header("x-retry-count"), None);
        assert_eq!(dead[0].header("x-ruststream-retry-count"), None);
    }
    assert!(look.dead_letters_of(&nonsense).is_empty());
}

#[tokio::test]
async fn a_guest_sees_its_message_attempt_and_cap() {
    let mut scene = Scene::new().await;
    let id = scene
        .publish_with("nack:0,nack:0,echo", &[("X-Tenant", "Acme")])
        .await;
    scene.host().cap(7).finish().await;
    let look = scene.look().await;
    let dead = look.dead_letters_of(&id);
    let enqueued = id.split_once('-').unwrap().0;
    let wanted = format!(
        "id={id} queue=orders attempt=3 max=7 enqueued={enqueued} body=18 headers=[x-tenant=Acme]"
    );
    assert_eq!(dead[0].reason(), "dropped");
    assert_eq!(dead[0].header("x-dead-letter-detail"), Some(&*wanted));
}

#[tokio::test]
async fn without_a_cap_a_message_is_redelivered_until_it_acks() {
    let mut scene = Scene::new().await;
    // 30 attempts beyond any default, half of them parked in between.
    let steps: Vec<&str> = (0..30).map(|i| ["nack:0", "nack:1"][i % 2]).collect();
    let id = scene.publish(&format!("{},ack", steps.join(","))).await;
    let ended = scene.host().finish().await;
    let wanted: Vec<u32> = (1..=31).collect();
    assert_eq!(ended.witness().attempts(&id), wanted);
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(ended.json()["requeued"], 30);
    assert_eq!(scene.raw.number("EXISTS orders:dead").await, 0);
}

#[tokio::test]
async fn a_drop_is_dead_lettered_if_there_is_a_key_and_discarded_if_not() {
    let mut scene = Scene::new().await;
    let plain = scene.publish("drop").await;
    let detailed = scene.publish("drop:no such customer").await;
    let ended = scene.host().dead_letter().finish().await;
    let look = scene.look().await;
    let details: Vec<_> = [&plain, &detailed]
        .map(|id| {
            look.dead_letters_of(id)[0]
                .header("x-dead-letter-detail")
                .map(str::to_owned)
        })
        .into();
    assert_eq!(
        details,
        [Some(String::new()), Some("no such customer".to_owned())]
    );
    assert_eq!(ended.json()["dead_lettered"], json!({"dropped": 2}));

    scene.raw.ask("DEL orders:dead").await;
    scene.publish("drop:discarded").await;
    let ended = scene.host().finish().await;
    assert_eq!(ended.json()["discarded"], 1);
    assert_eq!(ended.json()["dead_lettered"], json!({}));
    assert!(scene.look().await.is_empty());
    assert_eq!(scene.raw.number("EXISTS orders:dead").await, 0);
    // A discarded message stays in the stream, for other groups.
    assert_eq!(scene.raw.number("XLEN orders").await, 3);
}

#[tokio::test]
async fn on_cap_discard_needs_no_dead_letter_key() {
    let mut scene = Scene::new().await;
    let id = scene.publish("nack:0").await;
    let ended = scene
        .host()
        .flags("max-deliveries=2 on-cap=discard")
        .finish()
        .await;
    assert_eq!(ended.witness().attempts(&id), [1, 2]);
    assert_eq!(ended.json()["discarded"], 1);
    assert!(scene.look().await.is_empty());
}

#[tokio::test]
async fn a_fault_is_a_failed_attempt_or_dead_letters_at_once() {
    let kinds = [
        ("trap", "trap", "trap"),
        ("panic", "trap", "trap"),
        ("loop", "cpu-timeout", "timeout"),
        ("grow:8", "memory-limit", "memory-limit"),
        ("exit:3", "guest-exit", "trap"),
        ("recurse:10000000", "stack-overflow", "trap"),
    ];
    let mut scene = Scene::new().await;
    let host = scene
        .host()
        .cap(2)
        .flags("cpu=250ms memory=4MiB timeout=1m backoff-first=5ms")
        .until_empty();
    let mut ids = Vec::new();
    for (body, ..) in kinds {
        ids.push(scene.publish(body).await);
    }
    let recovers = scene.publish("trap,ack").await;
    let ended = host.finish().await;
    let (look, witness) = scene.check(std::slice::from_ref(&ended)).await;
    assert_eq!(witness.attempts(&recovers), [1, 2]);
    for (id, (body, kind, _)) in ids.iter().zip(kinds) {
        assert_eq!(witness.attempts(id), [1, 2], "{body}");
        let dead = look.dead_letters_of(id)[0];
        assert_eq!(dead.reason(), "max-deliveries");
        let detail = dead.header("x-dead-letter-detail").unwrap();
        assert!(detail.contains(kind), "{body}: {detail}");
    }
    let summary = ended.json();
    assert_eq!(summary["attempts"], 14);
    assert_eq!(summary["acked"], 1);
    assert_eq!(summary["requeued"], 7);
    assert_eq!(summary["faults"]["cpu-timeout"], 2);
    assert_eq!(summary["faults"]["memory-limit"], 2);

    scene.raw.ask("DEL orders orders:dead").await;
    let mut ids = Vec::new();
    for (body, ..) in kinds {
        ids.push(scene.publish(body).await);
    }
    let ended = host.flag("on-fault", "dead-letter").finish().await;
    let look = scene.look().await;
    for (id, (body, _, reason)) in ids.iter().zip(kinds) {
        assert_eq!(ended.witness().attempts(id), [1], "{body}");
        assert_eq!(look.dead_letters_of(id)[0].reason(), reason, "{body}");
    }
}

#[tokio::test]
async fn an_attempt_that_exceeds_its_timeout_is_a_fault() {
    let mut scene = Scene::new().await;
    let id = scene.publish("sleep:600000").await;
    let host = scene.host().cap(2).flag("timeout", "200ms").until_empty();
    let ended = host.finish().await;
    assert_eq!(ended.json()["faults"], json!({"wall-timeout": 2}));
    let look = scene.look().await;
    let dead = look.dead_letters_of(&id)[0];
    assert_eq!(dead.reason(), "max-deliveries");
    let detail = dead.header("x-dead-letter-detail").unwrap();
    assert!(detail.contains("wall-timeout"), "{detail}");

    let id = scene.publish("sleep:600000").await;
    host.flag("on-fault", "dead-letter").finish().await;
    let look = scene.look().await;
    assert_eq!(look.dead_letters_of(&id)[0].reason(), "timeout");
    assert_eq!(
        look.dead_letters_of(&id)[0].header("x-dead-letter-attempts"),
        Some("1")
    );
}

#[tokio::test]
async fn without_a_dead_letter_key_an_unfit_message_is_lost_with_a_warning_unless_a_route_discards_it()
 {
    let mut scene = Scene::new().await;
    let host = scene.host().flag("max-payload", "1KB").until_empty();
    for (host, warns) in [
        (host.clone(), true),
        (host.flag("dead-letter-routes", "oversize=discard"), false),
    ] {
        scene.publish(&"x".repeat(2000)).await;
        let ended = host.finish().await;
        assert_eq!(ended.json()["discarded"], 1);
        let lines = ended.log.iter();
        let logged: Vec<_> = lines
            .filter(|line| line.text("reason") == Some("oversize"))
            .map(|line| (line.text("level"), line.number("others")))
            .collect();
        let expected = match warns {
            true => (Some("WARN"), Some(0)),
            false => (Some("INFO"), None),
        };
        assert_eq!(logged, [expected]);
    }
}

#[tokio::test]
async fn entries_without_the_payload_field_are_messages() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD orders * id 1 amount 5").await;
    let negative = scene
        .raw
        .text("XADD orders * id 2 amount -5 h:tenant 7")
        .await;
    let own = scene
        .raw
        .text("XADD orders * data {\"id\":3,\"amount\":0}")
        .await;
    let binary = b"XADD orders * id \xff\xfe"
        .split(|byte| *byte == b' ')
        .collect::<Vec<_>>();
    let binary: String = redis::from_redis_value(scene.raw.ask_words(&binary).await).unwrap();
    // The example's handler reads orders as JSON.
    let shop = guest("orders-handler").display().to_string();
    let host = scene
        .host()
        .flag("handler", &shop)
        .dead_letter()
        .until_empty();
    let ended = host.finish().await;
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(ended.json()["faults"], json!({}));
    let look = scene.look().await;
    let detail = |id: &str| {
        let dead = look.dead_letters_of(id)[0];
        let detail = dead.header("x-dead-letter-detail");
        (dead.reason(), detail.unwrap().to_owned())
    };
    let nothing = "nothing to charge";
    let expected = ("dropped", format!("order 2: {nothing}"));
    assert_eq!(detail(&negative), expected);
    let dead = look.dead_letters_of(&negative)[0];
    assert_eq!(dead.field(b"amount"), Some(&b"-5"[..]));
    assert_eq!(dead.header("tenant"), Some("7"));
    let (reason, unread) = detail(&own);
    assert_eq!(reason, "dropped");
    assert!(unread.contains("not an order"), "{unread}");
    assert_eq!(detail(&binary).0, "malformed");
    let dead = look.dead_letters_of(&binary)[0];
    assert_eq!(dead.field(b"id"), Some(&b"\xff\xfe"[..]));

    // The same body in another field, which a setting names.
    host.flags("group=data body-field=data").finish().await;
    let look = Look::at_group(&scene.raw, "orders", "data", "orders:dead").await;
    let dead = look.dead_letters_of(&own)[1];
    assert_eq!(
        dead.header("x-dead-letter-detail"),
        Some(&*format!("order 3: {nothing}"))
    );
    assert_eq!(dead.field(b"data"), Some(&b"{\"id\":3,\"amount\":0}"[..]));
}

#[tokio::test]
async fn a_new_group_starts_at_the_beginning_or_at_the_end_of_the_stream() {
    let mut scene = Scene::new().await;
    let early = scene.publish_all("ack", 3).await;
    let ended = scene.host().flag("group-start", "$").finish().await;
    assert_eq!(ended.witness().total(), 0);
    let host = scene.host().flags("group=all group-start=0").ready().await;
    eventually("the old ones are handled", async || {
        early.iter().all(|id| host.witness().starts(id) == 1)
    })
    .await;
    let late = scene.publish("ack").await;
    host.starts(4).await;
    assert_eq!(host.witness().attempts(&late), [1]);
    let ended = host.drained().await;
    assert_eq!(ended.json()["acked"], 4);
}

#[tokio::test]
async fn an_entry_with_very_many_fields_is_dead_lettered_whole() {
    let mut scene = Scene::new().await;
    let names: Vec<String> = (0..6000).map(|n| format!("h:header-{n}")).collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", b"drop:no"];
    words.extend(names.iter().flat_map(|name| [name.as_bytes(), b"value"]));
    let id: String = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
    scene.published.insert(id.clone(), "drop:no".to_owned());
    scene.host().dead_letter().finish().await;
    let look = scene.look().await;
    let dead = look.dead_letters_of(&id)[0];
    assert!(
        names
            .iter()
            .all(|name| dead.field(name.as_bytes()) == Some(b"value"))
    );
}
