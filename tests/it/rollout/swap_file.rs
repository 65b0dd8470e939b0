//! The handler's file changes under a running host.

use std::io::Write;
use std::os::unix::fs::symlink;

use hostler_tests::command;
use hostler_tests::guests::{component, handler};
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use nix::sys::signal::Signal;

use crate::rollout::swap_scene::{
    COMPILES, Scene, current, digest, inspected, refuses, runs, said, scripted, versions,
};
use crate::rollout::swap_storm::slow;
use crate::sandbox::sandbox_compile::{children, slow_to_compile};

/// Assert that this version handles the next message.
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
async fn a_changed_file_is_taken_after_a_rename_a_write_or_a_new_link() {
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

    // A write in place.
    let in_place = scripted("written in place");
    std::fs::write(&scene.file, &in_place).unwrap();
    runs(&host, &in_place).await;
    handles(&scene, &in_place).await;

    // A link through a directory, which is then replaced by another directory.
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

    // Back to the version before: it is still loaded, so nothing is compiled.
    std::fs::remove_file(&scene.file).unwrap();
    std::fs::write(&scene.file, &v1).unwrap();
    // The lines before them are in the log, too.
    host.logs_times("swapped", 4).await;
    let verified = said(&host, "verifying a new version").len();
    runs(&host, &v1).await;
    assert_eq!(said(&host, "verifying a new version").len(), verified);

    // The same content, written again: no swap.
    scene.put(&v1);
    host.signal(Signal::SIGHUP);
    host.logs("reloading the handler's file").await;
    handles(&scene, &v1).await;
    assert_eq!(host.metric("hostler_swaps_total"), 5);
    let ended = host.drain().await;
    ended.expect_code(0);
    assert_eq!(ended.json()["swaps"], 5);
}

#[tokio::test]
async fn a_bad_file_never_replaces_the_running_version() {
    let first = scripted("good");
    let scene = Scene::new(&first).await;
    let selftests = r#"[{"body":"ack"},{"body":"drop","headers":{"x":"1"},"expect":"drop"}]"#;
    let options = scene.host().flag("selftest", selftests);
    let options = options.flags("memory=8MiB limit-component=4MiB");
    let host = options.ready().await;
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
        // It acknowledges a message that it should drop.
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
        assert_eq!(current(&host), *digest(&first));
        inspected(&scene, &refused).await;
    }
    // The host does not read a file that is too large.
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
    let refusal = "a new version was refused; the current one stays";
    host.logs_times(refusal, count + 1).await;
    assert_eq!(said(&host, refusal).len(), count + 1);
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
    // A good version is taken, and clears the refusal.
    scene.put(&whole);
    runs(&host, &whole).await;
    assert!(versions(&host)["refused"].is_null());
    handles(&scene, &whole).await;
    host.drained().await;
}

#[tokio::test]
async fn a_slow_compilation_and_a_missing_file_are_reported_as_refusals() {
    let first = scripted("first");
    let scene = Scene::new(&first).await;
    // The first version is in the cache: the limit affects only the second one.
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
    let refusal = "a new version was refused; the current one stays";
    host.logs_times(refusal, 2).await;
    assert_eq!(said(&host, refusal).len(), 2);
    host.drained().await;
}

#[tokio::test]
async fn a_retry_runs_on_the_current_version() {
    let (first, next) = (scripted("first"), scripted("next"));
    let scene = Scene::new(&first).await;
    let host = scene.host().ready().await;
    // The second attempt is due in an hour.
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
    host.drained().await;
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
    // The writer pauses: the file looks complete, and is refused.
    let refused = refuses(&host, half).await;
    assert!(refused["reason"].as_str().unwrap().contains("truncated"));
    handles(&scene, &first).await;
    file.write_all(rest).unwrap();
    drop(file);
    runs(&host, &next).await;
    host.drained().await;
}

#[tokio::test]
async fn a_pinned_host_refuses_every_other_version() {
    let first = scripted("pinned");
    let scene = Scene::new(&first).await;
    let options = scene.host().flag("handler-digest", &digest(&first));
    let host: Host = options.ready().await;
    let other = scripted("other");
    scene.put(&other);
    assert_eq!(refuses(&host, &other).await["step"], "digest");
    handles(&scene, &first).await;
    // The host did not compile it.
    assert!(said(&host, "verifying a new version").is_empty());
    scene.put(&first);
    eventually("nothing is refused any more", async || {
        versions(&host)["refused"].is_null()
    })
    .await;
    host.drained().await;
}

#[tokio::test]
async fn a_handler_that_fails_its_self_tests_does_not_start() {
    let scene = Scene::new(&good("lax")).await;
    let options = scene
        .host()
        .flag("selftest", r#"[{"body":"x","expect":"drop"}]"#);
    let ended = options.end().await;
    ended.expect_code(65);
    let stderr = ended.stderr();
    assert!(stderr.contains("self-test 1 expected drop"), "{stderr}");
}

/// The nice value of a running process.
fn niceness(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name in parentheses: the state is the third field, the nice value the nineteenth.
    stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
}

#[tokio::test]
async fn a_new_version_is_compiled_at_a_lower_priority() {
    let scene = Scene::new(&good("first")).await;
    let host = scene.host().flags(COMPILES).ready().await;
    // The suite itself may run at a lower priority.
    let lower = niceness(host.pid().try_into().unwrap()).map(|own| (own + 5).min(19));
    let mut seen = false;
    // A compilation may end before the test sees its process.
    for number in 1..=10 {
        let next = slow(number);
        scene.put(&next);
        let wanted = digest(&next);
        eventually("it is compiled and taken", async || {
            let compilers = children(host.pid());
            seen |= compilers.into_iter().any(|pid| niceness(pid) == lower);
            current(&host) == *wanted
        })
        .await;
        if seen {
            break;
        }
    }
    assert!(seen, "no compiler had a lower priority");
    host.drained().await;
}
