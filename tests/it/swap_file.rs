//! The handler's file changes under a running host.

use std::io::Write;
use std::os::unix::fs::symlink;

use hostler_tests::command;
use hostler_tests::guests::{component, guest, handler, variant};
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use nix::sys::signal::Signal;

use crate::sandbox_compile::{children, slow_to_compile};
use crate::swap_scene::{Scene, digest, inspected, refuses, runs, said, versions};
use crate::swap_storm::slow;

fn scripted(tag: &str) -> Vec<u8> {
    variant(&std::fs::read(guest("scripted")).unwrap(), tag)
}

/// The next message is handled by this version.
async fn handles(scene: &Scene, component: &[u8]) {
    let before = scene.dead().await.len();
    scene.publish(["drop:seen".to_owned()]);
    eventually("a message is handled", || async {
        scene.dead().await.len() == before + 1
    })
    .await;
    let dead = scene.dead().await;
    let by = dead[before].header("x-dead-letter-handler").unwrap();
    assert_eq!(by, digest(component));
}

#[tokio::test]
async fn a_file_that_changes_is_taken_however_it_is_written() {
    let first = scripted("one");
    let scene = Scene::new(&first).await;
    let host = scene.host().ready().await;
    handles(&scene, &first).await;

    // A rename.
    let renamed = scripted("renamed");
    scene.put(&renamed);
    runs(&host, &renamed).await;
    handles(&scene, &renamed).await;
    assert_eq!(versions(&host)["previous"]["digest"], *digest(&first));

    // In place.
    let in_place = scripted("written in place");
    std::fs::write(&scene.file, &in_place).unwrap();
    runs(&host, &in_place).await;
    handles(&scene, &in_place).await;

    // A link, and the flip of the directory that it goes through.
    let dir = scene.server.dir();
    let (v1, v2) = (scripted("v1"), scripted("v2"));
    for (name, bytes) in [("v1", &v1), ("v2", &v2)] {
        std::fs::create_dir(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("h.wasm"), bytes).unwrap();
    }
    symlink("v1", dir.join("data")).unwrap();
    std::fs::remove_file(&scene.file).unwrap();
    symlink("data/h.wasm", &scene.file).unwrap();
    runs(&host, &v1).await;
    symlink("v2", dir.join("data.new")).unwrap();
    std::fs::rename(dir.join("data.new"), dir.join("data")).unwrap();
    runs(&host, &v2).await;
    handles(&scene, &v2).await;

    // Back to the one before: it is at hand, and nothing is compiled.
    std::fs::remove_file(&scene.file).unwrap();
    std::fs::write(&scene.file, &v1).unwrap();
    let verified = said(&host, "verifying a new version").len();
    runs(&host, &v1).await;
    assert_eq!(said(&host, "verifying a new version").len(), verified);

    // The same again, written anew: no swap.
    scene.put(&v1);
    host.signal(Signal::SIGHUP);
    host.logs("told to look at the handler's file").await;
    handles(&scene, &v1).await;
    assert_eq!(host.metric("hostler_swaps_total"), 5);
    let ended = host.drain().await;
    ended.expect_code(0);
    assert_eq!(ended.json()["swaps"], 5);
}

#[tokio::test]
async fn a_bad_file_never_replaces_a_good_one() {
    let first = scripted("good");
    let scene = Scene::new(&first).await;
    let selftests = r#"[{"body":"ack"},{"body":"drop","headers":{"x":"1"},"expect":"drop"}]"#;
    let host = scene
        .host()
        .flag("selftest", selftests)
        .flag("memory", "8MiB")
        .flag("limit-component", "4MiB")
        .ready()
        .await;
    let whole = scripted("whole");
    let large = [&*whole, &vec![0; 5 << 20]].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("format", b"this is no component".to_vec()),
        ("format", whole[..whole.len() / 2].to_vec()),
        ("format", component("(module)")),
        ("world", component("(component)")),
        (
            "imports",
            component(
                r#"(component
                    (import "wasi:http/types@0.2.0" (instance))
                    (core module $m (func (export "handle")))
                    (core instance $i (instantiate $m))
                    (func $handle (canon lift (core func $i "handle")))
                    (instance $i (export "handle" (func $handle)))
                    (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#,
            ),
        ),
        ("limits", handler("(memory $memory 200)", "(i32.const 0)")),
        (
            "instance",
            handler("(func $s unreachable) (start $s)", "(i32.const 0)"),
        ),
        // It acknowledges what it should drop.
        ("selftest", good("lax")),
        ("selftest", bad("")),
    ];
    let count = cases.len();
    for (step, bytes) in cases {
        scene.put(&bytes);
        let refused = refuses(&host, &bytes).await;
        assert_eq!(refused["step"], step, "{refused}");
        assert_eq!(refused["origin"], "file");
        assert!(!refused["reason"].as_str().unwrap().is_empty());
        assert_eq!(versions(&host)["current"]["digest"], *digest(&first));
        inspected(&scene, &refused).await;
    }
    // Too large to be read at all.
    scene.put(&large);
    let is_too_large = async || {
        let reason = versions(&host)["refused"]["reason"].clone();
        reason.as_str().is_some_and(|r| r.contains("larger"))
    };
    eventually("it is too large", is_too_large).await;
    let refused = versions(&host)["refused"].clone();
    assert_eq!(refused["step"], "size");
    inspected(&scene, &refused).await;
    handles(&scene, &first).await;
    let refusals = said(&host, "a new version was refused; what runs goes on");
    assert_eq!(refusals.len(), count + 1);
    for (step, times) in [
        ("format", 3),
        ("selftest", 2),
        ("world", 1),
        ("imports", 1),
        ("limits", 1),
        ("instance", 1),
        ("size", 1),
    ] {
        let series = format!("hostler_swaps_refused_total{{step=\"{step}\"}}");
        assert_eq!(host.metric(&series), times, "{step}");
    }
    // A good one is taken, and nothing is refused any more.
    scene.put(&whole);
    runs(&host, &whole).await;
    assert!(versions(&host)["refused"].is_null());
    handles(&scene, &whole).await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_version_that_compiles_for_too_long_is_refused_and_a_file_that_is_gone_is_told() {
    let first = scripted("first");
    let scene = Scene::new(&first).await;
    // What the host starts with was compiled before: the limit is for the next one.
    let cache = scene.server.dir().join("cache").display().to_string();
    let file = scene.file.display().to_string();
    command::run(["check", &file, "--compile-cache", &cache]).ok();
    let options = scene.host().flag("compile-cache", &cache);
    let host = options.flag("limit-compile-time", "100ms").ready().await;
    let slow = slow_to_compile(400);
    scene.put(&slow);
    let refused = refuses(&host, &slow).await;
    assert_eq!(refused["step"], "compile", "{refused}");
    inspected(&scene, &refused).await;
    handles(&scene, &first).await;
    std::fs::remove_file(&scene.file).unwrap();
    eventually("it is gone", async || {
        versions(&host)["refused"]["step"] == "source"
    })
    .await;
    inspected(&scene, &versions(&host)["refused"]).await;
    handles(&scene, &first).await;
    for step in ["compile", "source"] {
        let series = format!("hostler_swaps_refused_total{{step=\"{step}\"}}");
        assert_eq!(host.metric(&series), 1, "{step}");
    }
    let refusals = said(&host, "a new version was refused; what runs goes on");
    assert_eq!(refusals.len(), 2);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_retry_runs_on_the_version_that_is_there_then() {
    let (first, next) = (scripted("first"), scripted("next"));
    let scene = Scene::new(&first).await;
    let host = scene.host().ready().await;
    // Its second attempt would be an hour away.
    scene.publish(["nack:3600000,drop:again".to_owned()]);
    let parked = "ZRANGE {orders}:parked:workers 0 -1";
    let mut waiting: Vec<String> = Vec::new();
    eventually("it is parked", async || {
        waiting = redis::from_redis_value(scene.raw.ask(parked).await).unwrap();
        waiting.len() == 1
    })
    .await;
    scene.put(&next);
    runs(&host, &next).await;
    let now = format!("ZADD {{orders}}:parked:workers XX 0 {}", waiting[0]);
    scene.raw.ask(&now).await;
    eventually("it is dropped", async || scene.dead().await.len() == 1).await;
    let dead = &scene.dead().await[0];
    assert_eq!(dead.header("x-dead-letter-handler"), Some(&*digest(&next)));
    assert_eq!(dead.header("x-dead-letter-attempts"), Some("2"));
    assert_eq!(dead.header("x-dead-letter-detail"), Some("again"));
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_half_written_file_is_never_run() {
    let first = scripted("first");
    let scene = Scene::new(&first).await;
    let host = scene.host().ready().await;
    let next = scripted("next");
    let (half, rest) = next.split_at(next.len() / 3);
    let mut file = std::fs::File::create(&scene.file).unwrap();
    file.write_all(half).unwrap();
    // A writer that pauses for as long as it likes: what is there looks finished, and is refused.
    let refused = refuses(&host, half).await;
    assert!(refused["reason"].as_str().unwrap().contains("truncated"));
    handles(&scene, &first).await;
    file.write_all(rest).unwrap();
    drop(file);
    runs(&host, &next).await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_pin_keeps_every_other_version_out() {
    let first = scripted("pinned");
    let scene = Scene::new(&first).await;
    let options = scene.host().flag("handler-digest", &digest(&first));
    let host: Host = options.ready().await;
    let other = scripted("other");
    scene.put(&other);
    assert_eq!(refuses(&host, &other).await["step"], "digest");
    handles(&scene, &first).await;
    // Nothing was compiled for it.
    assert!(said(&host, "verifying a new version").is_empty());
    scene.put(&first);
    eventually("nothing is refused any more", async || {
        versions(&host)["refused"].is_null()
    })
    .await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_handler_that_fails_its_self_tests_does_not_start() {
    let scene = Scene::new(&good("lax")).await;
    let options = scene
        .host()
        .flag("selftest", r#"[{"body":"x","expect":"drop"}]"#);
    let ended = options.end().await;
    ended.expect_code(65);
    assert!(
        ended.stderr().contains("self-test 1 expected drop"),
        "{}",
        ended.stderr()
    );
}

/// How nice a process is, while it runs.
fn niceness(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses: the state is the third field of all, this the nineteenth.
    stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
}

#[tokio::test]
async fn a_new_version_is_compiled_behind_the_one_that_runs() {
    let scene = Scene::new(&good("first")).await;
    let host = scene.host().ready().await;
    let mut seen = false;
    // A look may come too late for one.
    for number in 1..=10 {
        let next = slow(number);
        scene.put(&next);
        let wanted = digest(&next);
        eventually("it is compiled and taken", async || {
            let compilers = children(host.pid());
            seen |= compilers.into_iter().any(|pid| niceness(pid) == Some(5));
            versions(&host)["current"]["digest"] == *wanted
        })
        .await;
        if seen {
            break;
        }
    }
    assert!(seen, "no compiler left the cores to others");
    host.drain().await.expect_code(0);
}
