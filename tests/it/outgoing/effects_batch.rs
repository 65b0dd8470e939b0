//! What handlers of batches publish: each call belongs to one message, and happens with its acknowledgement.

use std::collections::BTreeSet;

use hostler::delivery::key_value::KeyRules;
use hostler::grants::Grants;
use hostler::sandbox::{Sandbox, Settings};
use hostler_tests::checker::DeadLetter;
use hostler_tests::command::run;
use hostler_tests::guests::{batch_handler_beside, guest};
use hostler_tests::host::{Ended, HostOptions};

use crate::outgoing::effects_publish::{
    Scene, bodies, details, each_message_has_its_follow_ups, host, publish,
};
use crate::scene::{Kind, on_both};

on_both! {
    effects_belong_to_one_message_of_a_batch
    a_batch_that_is_split_has_had_no_effects
    keys_belong_to_one_message_of_a_batch
    follow_ups_of_batches_are_exactly_one_whichever_host_dies
}

fn batching(scene: &Scene, kind: Kind) -> HostOptions {
    host(scene, kind)
        .flag("handler", &guest("acting-batch").display().to_string())
        .flags("batch-size=8 batch-wait=50ms")
}

/// The sizes of the calls, in order.
fn calls(ended: &Ended) -> Vec<usize> {
    let sizes = ended.log.iter().filter_map(|line| {
        let size = line.text("line")?.strip_prefix("batch ")?;
        size.parse().ok()
    });
    sizes.collect()
}

/// The ids and bodies of the messages in a stream.
async fn follow_ups(scene: &Scene, stream: &str) -> BTreeSet<(String, String)> {
    let all = DeadLetter::all(&scene.raw, stream).await;
    let one = |entry: &DeadLetter| {
        let body = entry.field(b"_payload").unwrap_or_default();
        let id = entry.header("x-message-id").unwrap_or_default();
        (id.to_owned(), String::from_utf8_lossy(body).into_owned())
    };
    let found: BTreeSet<_> = all.iter().map(one).collect();
    assert_eq!(found.len(), all.len(), "nothing is published twice");
    found
}

fn source(kind: Kind) -> &'static str {
    match kind {
        Kind::Stream => "orders/workers",
        Kind::List => "orders",
    }
}

/// Acks, a nack, drops, and a call for another message of the batch.
async fn effects_belong_to_one_message_of_a_batch(kind: Kind) {
    let scene = Scene::new().await;
    for (id, body) in [
        ("ack", "publish:invoices:a1+publish:invoices:a2"),
        ("nack", "publish:invoices:no+nack:5,publish:invoices:n"),
        ("drop", "publish:invoices:no+drop:no"),
        ("for ack", "at:0:invoices:a3+publish:invoices:b"),
        ("for drop", "at:2:invoices:no"),
        ("range", "publish:invoices:no+at:8:invoices:no"),
        ("far", "at:4294967295:invoices:no"),
        ("name", "publish:invoice:no"),
    ] {
        publish(&scene, kind, id, body).await;
    }
    let ended = batching(&scene, kind)
        .flag("concurrency", "1")
        .finish()
        .await;
    assert_eq!(calls(&ended), [8, 1], "they go together");
    assert_eq!(ended.json()["acked"], 4);
    let wanted = [
        ("ack#1", "a1"),
        ("ack#2", "a2"),
        ("ack#3", "a3"),
        ("for ack#1", "b"),
        ("nack#1", "n"),
    ];
    let source = source(kind);
    let wanted = wanted.map(|(id, body)| (format!("{source}/{id}"), body.to_owned()));
    assert_eq!(follow_ups(&scene, "invoices").await, BTreeSet::from(wanted));
    let details = details(&scene, kind).await;
    for (id, said) in [
        ("drop", "no"),
        (
            "range",
            "the call has 8 messages, from 0: none has the index 8",
        ),
        ("far", "none has the index 4294967295"),
        ("name", "no destination has this name"),
    ] {
        assert!(details[id].contains(said), "{id}: {}", details[id]);
    }
    assert_eq!(details.len(), 4);
}

/// One message of the batch faults, or has no outcome: the pieces that run again have the effects.
async fn a_batch_that_is_split_has_had_no_effects(kind: Kind) {
    for fault in ["trap", "miss"] {
        let scene = Scene::new().await;
        for number in 0..8 {
            let acts = format!("at:0:invoices:first+publish:invoices:{number}");
            let body = match number {
                5 => format!("{acts}+{fault},publish:invoices:5"),
                _ => acts,
            };
            publish(&scene, kind, &number.to_string(), &body).await;
        }
        let ended = batching(&scene, kind)
            .flag("concurrency", "1")
            .finish()
            .await;
        assert_eq!(ended.json()["acked"], 8);
        assert_eq!(calls(&ended), [8, 4, 4, 2, 1, 1, 2, 1], "{fault}");
        let mut published = bodies(&scene, "invoices").await;
        published.sort();
        let mut wanted: Vec<String> = (0..8).map(|n: u32| n.to_string()).collect();
        // Each message that acked published once for the first message of its call, if that acked too.
        wanted.extend(std::iter::repeat_n("first".to_owned(), 4 + 1 + 2));
        assert_eq!(published, wanted, "{fault}");
        follow_ups(&scene, "invoices").await;
    }
}

/// The value of a key of the handler.
async fn value(scene: &Scene, key: &str) -> Option<String> {
    let key = format!("{{orders}}:kv:{key}");
    match scene.exists(&key).await {
        true => Some(scene.raw.text(&format!("GET {key}")).await),
        false => None,
    }
}

async fn keys_belong_to_one_message_of_a_batch(kind: Kind) {
    let scene = Scene::new().await;
    for (id, body) in [
        ("ack", "set:a=1+find:a=1"),
        ("nack", "set:b=no+nack:5,set:b=2"),
        ("drop", "set:c=no+drop:no"),
        // The value that another message of the batch has set is not there yet.
        ("reads", "find:a+increment:n:2+set:mine=3"),
        ("for drop", "set-at:2:d=no+set-at:0:e=5"),
        ("range", "set:f=no+set-at:8:f=no"),
        ("own", "set:n2=1+increment:n2:1"),
        ("deletes", "set:g=1+delete:g+find:g"),
    ] {
        publish(&scene, kind, id, body).await;
    }
    let keys = r#"{"prefix":"{orders}:kv:"}"#;
    let ended = batching(&scene, kind)
        .without("grant-publish")
        .flag("grant-key-value", keys)
        .flag("concurrency", "1")
        .finish()
        .await;
    assert_eq!(calls(&ended), [8, 1], "they go together");
    assert_eq!(ended.json()["acked"], 5);
    for (key, wanted) in [
        ("a", Some("1")),
        ("b", Some("2")),
        ("c", None),
        ("n", Some("2")),
        ("mine", Some("3")),
        ("d", None),
        ("e", Some("5")),
        ("f", None),
        ("n2", None),
        ("g", None),
    ] {
        assert_eq!(value(&scene, key).await.as_deref(), wanted, "{key}");
    }
    let details = details(&scene, kind).await;
    for (id, said) in [
        ("range", "none has the index 8"),
        ("own", "this attempt has written the key"),
    ] {
        assert!(details[id].contains(said), "{id}: {}", details[id]);
    }

    // Messages that read and write one key, in batches: no update is lost.
    for number in 0..20 {
        publish(
            &scene,
            kind,
            &number.to_string(),
            "add:sum+publish:invoices:x",
        )
        .await;
    }
    let keys = r#"{"prefix":"{orders}:kv:","commit":"checked"}"#;
    let ended = batching(&scene, kind)
        .flag("grant-key-value", keys)
        .finish()
        .await;
    assert_eq!(ended.json()["acked"], 20);
    assert_eq!(value(&scene, "sum").await.as_deref(), Some("20"));
    assert_eq!(bodies(&scene, "invoices").await.len(), 20);
}

async fn follow_ups_of_batches_are_exactly_one_whichever_host_dies(kind: Kind) {
    each_message_has_its_follow_ups(kind, 200, batching).await;
}

#[test]
fn interfaces_of_one_message_are_refused_in_a_batch_by_name() {
    let settings = Settings {
        grants: Grants {
            publish: Some(Default::default()),
            key_value: Some(KeyRules::none()),
            ..Grants::default()
        },
        ..Settings::default()
    };
    for name in [
        "hostler:handler/publisher@1.2.0",
        "hostler:handler/key-value@1.2.0",
        "wasi:keyvalue/batch@0.2.0-draft2",
    ] {
        let import = format!("(import \"{name}\" (instance))");
        let refused = Sandbox::load_bytes(&batch_handler_beside(&import), &settings);
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(name), "{said}");
        assert!(said.contains("import `batch-effects`"), "{said}");
    }
}

#[test]
fn check_shows_the_grant_of_a_batch() {
    let file = guest("acting-batch").display().to_string();
    let refused = run(["check", &file]);
    assert_eq!(refused.code, 65, "{refused:?}");
    for said in [
        "hostler:handler/batch-effects@1.2.0 (needs the grant `publish or key-value`)",
        "[grant.publish]\nname = \"stream:key\"\n\n[grant.key-value]\nprefix = ",
    ] {
        assert!(refused.stderr.contains(said), "{said}: {refused:?}");
    }
    let granted = run([
        "check",
        &file,
        r#"--grant-publish={"invoices":"stream:invoices"}"#,
    ])
    .ok();
    assert!(
        granted
            .stdout
            .contains("by the grant `publish or key-value`"),
        "{granted:?}"
    );
}
