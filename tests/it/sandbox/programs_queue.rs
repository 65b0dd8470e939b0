//! Programs as handlers, beside a real Redis and through the commands.

use hostler_tests::command::run;
use hostler_tests::guests::guest_module;
use hostler_tests::redis::{RawRedis, eventually};
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::rollout::swap_scene::{Scene as SwapScene, runs, scripted};
use crate::runtime::e2e_scene::Scene;

fn program() -> String {
    guest_module("program").display().to_string()
}

/// A program as its file holds it.
fn module() -> Vec<u8> {
    std::fs::read(guest_module("program")).unwrap()
}

#[tokio::test]
async fn exit_codes_have_the_effects_of_outcomes() {
    let mut scene = Scene::new().await;
    let acked = scene.publish("ack").await;
    let requeued = scene.publish("nack,ack").await;
    let never = scene.publish("nack").await;
    let failed = scene.publish("exit:3").await;
    let dropped = scene.publish("drop:no such customer").await;
    let host = scene
        .host()
        .flag("handler", &program())
        .flag("backoff-first", "5ms")
        .cap(3);
    let ended = host.finish().await;
    let witness = ended.witness();
    assert_eq!(witness.attempts(&acked), [1]);
    assert_eq!(witness.attempts(&requeued), [1, 2]);
    assert_eq!(witness.attempts(&never), [1, 2, 3]);
    assert_eq!(witness.attempts(&failed), [1, 2, 3]);
    assert_eq!(witness.attempts(&dropped), [1]);
    let look = scene.look().await;
    assert!(look.is_empty(), "{look:?}");
    let dead = |id: &str| look.dead_letters_of(id)[0];
    assert_eq!(dead(&never).reason(), "max-deliveries");
    assert_eq!(dead(&failed).reason(), "max-deliveries");
    assert_eq!(dead(&dropped).reason(), "dropped");
    let detail = dead(&dropped).header("x-dead-letter-detail");
    assert_eq!(detail, Some("no such customer"));
    assert_eq!(ended.json()["faults"], json!({ "guest-exit": 3 }));
}

#[tokio::test]
async fn a_killed_host_loses_no_message_of_a_program() {
    let mut scene = Scene::new().await;
    scene.publish_all("sleep:20+ack", 150).await;
    scene.publish_all("nack,sleep:5+drop:later", 20).await;
    let options = scene
        .host()
        .flag("handler", &program())
        .flags("concurrency=4 min-idle=500ms backoff-first=5ms")
        .cap(5);
    let killed = options.ready().await;
    eventually("some have started", async || killed.witness().total() > 20).await;
    let killed = killed.kill().await;
    let ended = [killed, options.finish().await];
    let (look, _) = scene.check(&ended).await;
    assert!(look.is_empty(), "{look:?}");
    assert_eq!(look.dead.len(), 20, "{look:?}");
}

/// The bodies of the entries of a stream.
async fn bodies(raw: &RawRedis, key: &str) -> Vec<String> {
    let entries: Vec<(String, Vec<String>)> =
        redis::from_redis_value(raw.ask(&format!("XRANGE {key} - +")).await).unwrap();
    let body = |fields: Vec<String>| {
        let at = fields.iter().position(|field| field == "_payload").unwrap();
        fields[at + 1].clone()
    };
    entries
        .into_iter()
        .map(|(_, fields)| body(fields))
        .collect()
}

#[tokio::test]
async fn what_a_program_writes_is_published_once_with_its_ack() {
    let mut scene = Scene::new().await;
    for n in 0..50 {
        scene.publish(&format!("out:invoice {n}+ack")).await;
        scene
            .publish(&format!("out:early {n}+nack,out:second {n}+ack"))
            .await;
        scene.publish(&format!("out:never {n}+drop:unwanted")).await;
    }
    let config = scene.server.dir().join("orders.toml");
    let text = format!(
        "handler = \"{}\"\nbackoff.first = \"5ms\"\nprogram.stdout = \"publish:invoices\"\n\
         program.args = [\"--quiet\"]\n\n[program.exit_codes]\n3 = \"ack\"\n\n\
         [grant.publish]\ninvoices = \"stream:invoices\"\n",
        program()
    );
    std::fs::write(&config, text).unwrap();
    scene.publish("out:by code 3+exit:3").await;
    let host = scene
        .host()
        .without("handler")
        .flag("config", &config.display().to_string())
        .cap(3);
    let ended = host.finish().await;
    let mut published = bodies(&scene.raw, "invoices").await;
    published.sort();
    let mut wanted: Vec<String> = (0..50)
        .flat_map(|n| [format!("invoice {n}\n"), format!("second {n}\n")])
        .chain(["by code 3\n".to_owned()])
        .collect();
    wanted.sort();
    assert_eq!(published, wanted);
    assert_eq!(ended.json()["acked"], 101);
}

#[tokio::test]
async fn a_queue_goes_from_a_handler_to_a_program_and_back_under_load() {
    let native = scripted("native");
    let scene = SwapScene::new(&native).await;
    let host = scene.host().flags("concurrency=4").ready().await;
    let mut published = 0;
    let mut load = |count: usize| {
        published += scene.publish((0..count).map(|_| "sleep:2+ack".to_owned()));
    };
    load(300);
    for component in [module(), native, module()] {
        scene.put(&component);
        load(300);
        runs(&host, &component).await;
        load(100);
    }
    scene.emptied().await;
    let ended = host.drain().await;
    ended.expect_code(0);
    assert_eq!(Witness::of_all(&[ended]).total(), published);
    assert!(scene.dead().await.is_empty());
}

#[test]
fn the_commands_take_programs() {
    let program = program();
    let text = run(["check", &program]).ok().stdout;
    assert!(text.contains("wasi:cli/run@0.2."), "{text}");
    assert!(
        text.contains("exit codes") && text.contains("all"),
        "{text}"
    );
    let json = run(["check", &program, "--json"]).ok().json();
    assert_eq!(json["exit_codes"], "all");
    for (body, code) in [("ack", 0), ("nack", 10), ("drop:old", 11), ("exit:9", 12)] {
        let ended = run(["invoke", &program, "--body", body]);
        assert_eq!(ended.code, code, "{ended:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let cases = directory.path().join("cases.toml");
    let table = "[[case]]\nbody = \"ack\"\noutcome = \"ack\"\n\n\
                 [[case]]\nbody = \"drop:old\"\noutcome = \"drop\"\n\n\
                 [[case]]\nbody = \"nack\"\noutcome = \"nack-requeue\"\n";
    std::fs::write(&cases, table).unwrap();
    run(["test", &program, &cases.display().to_string()]).ok();
    let body = directory.path().join("body");
    std::fs::write(&body, "ack").unwrap();
    let body = body.display().to_string();
    let bench = ["bench", "--in-process", &program, "--body-file", &body];
    let quick = ["--messages", "20", "--repeat", "1"];
    let json = run(bench.iter().chain(&quick).chain(&["--json"]))
        .ok()
        .json();
    assert_eq!(json["fresh"]["calls"], 20);
    // A program runs once in an instance.
    assert!(json["reuse"].is_null(), "{json}");
    let text = run(bench.iter().chain(&quick)).ok().stdout;
    assert!(!text.contains("a reused instance"), "{text}");
    let ended = run(["check", &program, "--reuse", "10"]);
    assert_eq!(ended.code, 65, "{ended:?}");
    assert!(ended.stderr.contains("set it to 1"), "{ended:?}");
}
