//! A dead letter lists the calls of its last attempt, without their content. On streams and on reliable lists.

use hostler::wire::dead_letter::CALLS;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::web::Web;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::grants::outbound_scene::{rule, url};

on_both! {
    a_dead_letter_lists_the_calls_of_its_last_attempt_without_their_content
    a_call_that_has_no_answer_when_its_attempt_ends_is_listed
    the_calls_that_are_kept_are_bounded_and_can_be_turned_off
}

/// A host whose handler may call this server.
fn host(scene: &Scene, web: &Web, more: &str) -> HostOptions {
    let config = scene.server.dir().join("orders.toml");
    let grants = format!(
        "{}\n[grant.secret]\nneeded = {{ variable = \"NEEDED\", expose = true }}\n{more}",
        rule(web, "")
    );
    std::fs::write(&config, grants).unwrap();
    scene
        .binary()
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .variable("NEEDED", "needed")
}

fn calls(found: &Value) -> &[Value] {
    found["calls"].as_array().unwrap()
}

async fn a_dead_letter_lists_the_calls_of_its_last_attempt_without_their_content(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let refused = format!("send:POST|{}|b=planted", url(&web, "/status/422?planted=1"));
    let body = format!("send:GET|{}+{refused}+trap", url(&web, "/size/2000"));
    scene.send(&body).await;
    let host = host(&scene, &web, "").flag("max-deliveries", "2");
    host.finish().await;
    assert_eq!(web.seen().len(), 4, "two attempts");
    let dead = scene.only_dead().await;
    let kept = dead.header(CALLS);
    assert!(!kept.contains("planted"), "{kept}");

    let json = scene.dlq("peek", &["--json"]).ok().json();
    let entry = &json["entries"][0];
    let [first, second] = calls(entry) else {
        panic!("two calls: {entry}");
    };
    assert_eq!(first["name"], "GET");
    assert_eq!(
        (&first["status"], &first["bytes"]),
        (&json!(200), &json!(2000))
    );
    assert_eq!(
        (&second["name"], &second["status"]),
        (&json!("POST"), &json!(422))
    );
    assert_eq!(second["target"], url(&web, "/status/422"));
    assert!(
        first["at_ms"].as_u64() <= second["at_ms"].as_u64(),
        "{entry}"
    );

    let id = entry["id"].as_str().unwrap();
    let shown = scene.dlq("show", &[id]).ok().stdout;
    let line = shown
        .lines()
        .find(|line| line.contains("POST http://api.test:"));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    assert!(
        line.contains("/status/422 ") && line.contains(" 422 "),
        "{line}"
    );
    assert!(!shown.contains(CALLS), "once, with their lines: {shown}");

    scene.dlq("replay", &[]).ok();
    let back = scene.all(scene.key()).await.pop().unwrap();
    assert!(back.headers.find(CALLS).is_none(), "{back:?}");
}

async fn a_call_that_has_no_answer_when_its_attempt_ends_is_listed(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    scene
        .send(format!("send:GET|{}", url(&web, "/never")))
        .await;
    let host = host(&scene, &web, "").flags("max-deliveries=1 timeout=1s");
    host.finish().await;
    let json = scene.dlq("peek", &["--json"]).ok().json();
    let entry = &json["entries"][0];
    let [call] = calls(entry) else {
        panic!("one call: {entry}");
    };
    assert!(
        entry["detail"]
            .as_str()
            .unwrap()
            .starts_with("wall-timeout"),
        "{entry}"
    );
    // The time of the request ends with that of its attempt.
    let error = call["error"].as_str().unwrap();
    assert!(["cancelled", "timeout"].contains(&error), "{entry}");
    assert_eq!(call["status"], Value::Null);
}

async fn the_calls_that_are_kept_are_bounded_and_can_be_turned_off(kind: Kind) {
    let scene = Scene::new(kind).await;
    let web = Web::start().await;
    let long = "x".repeat(200);
    let call = |i| format!("send:GET|{}", url(&web, &format!("/ok/{i}/{long}")));
    let many: Vec<String> = (0..100).map(call).collect();
    let body = format!("{}+drop", many.join("+"));
    for recording in ["calls", "off"] {
        scene.send(&body).await;
        let host = host(
            &scene,
            &web,
            &format!("[dead_letter]\nrecording = \"{recording}\"\n"),
        );
        host.finish().await;
    }
    let dead = scene.dead().await;
    let (kept, off) = (&dead[0], &dead[1]);
    assert!(off.headers.find(CALLS).is_none());
    let text = kept.header(CALLS);
    assert!(text.len() <= 4096, "{}", text.len());
    let kept: Value = serde_json::from_str(text).unwrap();
    let peek = scene.dlq("peek", &["--json"]).ok().json();
    let shown: Vec<_> = peek["entries"].as_array().unwrap().iter().collect();
    let shown = shown.iter().find(|entry| !calls(entry).is_empty()).unwrap();
    assert_eq!(shown["calls_before"], kept["before"]);
    let listed = calls(&kept);
    assert_eq!(listed.len() as u64 + kept["before"].as_u64().unwrap(), 100);
    let last = listed.last().unwrap()["target"].as_str().unwrap();
    assert!(last.contains("/ok/99/"), "{last}");
}
