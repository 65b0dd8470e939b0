//! Refusals to start, and secrets that no output shows.

use std::path::Path;

use hostler_tests::command;
use hostler_tests::guests::{component, guest, handler, handler_version, language};
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};
use nix::sys::signal::Signal;

use crate::runtime::e2e_scene::Scene;

/// The host does not start: it ends with this code, one error line and a hint.
async fn refused(options: &HostOptions, code: i32, what: &[&str], hint: &str) {
    let ended = options.end().await;
    let said = ended.stderr();
    ended.expect_code(code);
    assert_eq!(ended.stdout, "", "there is no data");
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{said}");
    for part in what {
        assert!(errors[0].contains(part), "{part} in {said}");
    }
    let hints: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("hint: "))
        .collect();
    let hints = hints.join("\n");
    assert!(hints.contains(hint), "{hint} in {said}");
}

#[tokio::test]
async fn unusable_keys_are_refused_and_no_key_is_changed() {
    let scene = Scene::new().await;
    let host = scene.host();
    for (keys, said) in [
        (&["orders", "orders:dead"][..], "the queue needs a stream"),
        (&["orders:dead"], "the dead-letter queue"),
        (&["{orders}:parked:workers"], "parked deliveries"),
    ] {
        scene.raw.ask("FLUSHALL").await;
        for key in keys {
            scene.raw.ask(&format!("SET {key} mine")).await;
        }
        let what = [keys[0], "string", said];
        refused(&host.clone().dead_letter(), 64, &what, "name another key").await;
        let keys: Vec<String> = redis::from_redis_value(scene.raw.ask("KEYS *").await).unwrap();
        assert!(
            keys.iter()
                .all(|key| !key.contains("orders") || keys.contains(key))
        );
        assert_eq!(scene.raw.number("DBSIZE").await as usize, keys.len());
    }
    scene.raw.ask("FLUSHALL").await;
    let same = host.clone().flags("dead-letter=orders max-deliveries=3");
    refused(&same, 64, &["dead-letter", "orders"], "another key").await;
    let nowhere = host.clone().flag("max-deliveries", "3");
    refused(
        &nowhere,
        64,
        &["max_deliveries", "dead_letter.key"],
        "--on-cap discard",
    )
    .await;
    let flag = |name: &str, value: &str| host.clone().flag(name, value);
    refused(&flag("max-deliveries", "0"), 64, &["max-deliveries"], "").await;
    refused(&flag("group", ""), 64, &["group"], "").await;
    refused(&flag("min-idle", "0s"), 64, &["min-idle"], "100ms").await;
    assert_eq!(scene.raw.number("DBSIZE").await, 0);
}

#[tokio::test]
async fn an_unusable_server_is_refused() {
    let primary = Scene::new().await;
    let replica = Scene::with(RedisOptions::default().tcp()).await;
    let nobody = format!("unix://{}/nobody.sock", primary.server.dir().display());
    let host = primary.host();
    let flag = |name, value: &str| host.clone().flag(name, value);
    refused(
        &flag("redis", &nobody),
        69,
        &["nobody.sock"],
        "--wait-redis",
    )
    .await;
    let port = replica.server.port();
    replica
        .raw
        .ask(&format!("REPLICAOF 127.0.0.1 {port}"))
        .await;
    let url = replica.server.url();
    refused(&flag("redis", &url), 64, &["replica"], "name the primary").await;
    refused(
        &flag("redis", "http://localhost"),
        64,
        &["redis"],
        "embedded",
    )
    .await;
}

/// A component in a file.
fn file(dir: &Path, bytes: &[u8]) -> String {
    let path = dir.join("handler.wasm");
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn bad_components_are_refused_with_the_found_and_the_wanted_interface() {
    let scene = Scene::new().await;
    let wanted = "hostler:handler/message-handler@1";
    let no_export = component("(component)");
    let module = component("(module)");
    let other_version = handler_version("2.0.0", "", "i32.const 0");
    let ungranted = component(
        r#"(component
            (import "acme:bank/transfer@1.2.0" (instance (export "pay" (func))))
            (core module $m (func (export "handle")))
            (core instance $i (instantiate $m))
            (func $handle (canon lift (core func $i "handle")))
            (instance $i (export "handle" (func $handle)))
            (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#,
    );
    let truncated = &handler("", "i32.const 0")[..200];
    let cases: [(&[u8], &[&str]); 5] = [
        (&no_export, &[wanted]),
        (&module, &["module", "component"]),
        (&other_version, &["@2.0.0", "@1"]),
        (&ungranted, &["acme:bank/transfer@1.2.0"]),
        (truncated, &["handler.wasm"]),
    ];
    for (bytes, parts) in cases {
        let path = file(scene.server.dir(), bytes);
        let ended = scene.host().flag("handler", &path).end().await;
        ended.expect_code(65);
        let said = ended.stderr();
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(said.contains("handler.wasm"), "{said}");
        // Every command that loads a component says the same.
        for arguments in [&["check", &path][..], &["invoke", &path, "--body", "x"]] {
            let ended = command::run(arguments);
            assert_eq!((ended.code, ended.stdout.as_str()), (65, ""), "{ended:?}");
            assert_eq!(ended.stderr, said);
        }
    }
    // Nothing was asked of the queue.
    assert_eq!(scene.raw.number("DBSIZE").await, 0);
}

#[tokio::test]
async fn a_host_that_waits_for_its_server_then_serves() {
    let mut scene = Scene::new().await;
    scene.server.kill();
    let host = scene.host().flag("wait-redis", "50s").start();
    host.logs("waiting for redis").await;
    scene.server.restart();
    host.logs("ready").await;
    scene.raw = scene.server.raw().await;
    let id = scene.publish("ack").await;
    eventually("it serves", async || host.witness().starts(&id) == 1).await;
    host.drained().await;

    scene.server.kill();
    let host = scene.host().flag("wait-redis", "300ms");
    refused(&host, 69, &["redis.sock"], "--wait-redis").await;
}

/// The contents of all files below a directory.
fn files(dir: &Path, found: &mut Vec<u8>) {
    for entry in std::fs::read_dir(dir).unwrap().map_while(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.extend(std::fs::read(&path).unwrap_or_default());
        }
    }
}

#[tokio::test]
async fn no_output_contains_a_password() {
    const SECRET: &str = "Tr0ub4dor-3";
    // A password can be given in several ways.
    let user = format!("app on >{SECRET} ~* &* +@all");
    let secrets = RedisOptions::default().tcp().user(&user);
    let scene = Scene::with(secrets).await;
    let port = scene.server.port();
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, format!("{SECRET}\n")).unwrap();
    let config = dir.path().join("orders.toml");
    let in_url = format!("redis://app:{SECRET}@127.0.0.1:{port}");
    std::fs::write(&config, format!("redis = \"{in_url}\"\n")).unwrap();
    let plain = format!("redis://app@127.0.0.1:{port}");
    let base = scene
        .host()
        .cap(2)
        .admin()
        .flags("log-level=info,hostler=trace,redis=trace,tokio=trace,axum=trace")
        .flags("backoff-first=5ms")
        .directory(dir.path());
    let ways = [
        base.clone().flag("redis", &in_url),
        base.clone()
            .without("redis")
            .flag("config", &config.display().to_string()),
        base.clone()
            .flag("redis", &plain)
            .variable("HOSTLER_REDIS_PASSWORD", SECRET),
        base.clone()
            .flag("redis", &plain)
            .flag("redis-password-file", &password.display().to_string()),
        base.without("redis").variable("HOSTLER_REDIS", &in_url),
    ];
    for (n, options) in ways.iter().enumerate() {
        scene.raw.ask("XADD orders * _payload ack").await;
        scene
            .raw
            .ask("XADD orders * _payload text:hello+nack")
            .await;
        let host = options.ready().await;
        host.starts(3).await;
        let pages = ["/metrics", "/ready", "/live"].map(|path| host.get(path).1);
        // Other users can see the arguments. Only the first way puts the password there.
        let argv = std::fs::read_to_string(format!("/proc/{}/cmdline", host.pid())).unwrap();
        assert_eq!(argv.contains(SECRET), n == 0, "way {n}");
        let mut trouble = String::new();
        if n == 0 {
            // The messages about a login that fails must not contain it either.
            scene.raw.ask("ACL SETUSER app resetpass >other").await;
            scene.raw.ask("CLIENT KILL USER app").await;
            host.logs("redis is away").await;
            trouble = host.get("/ready").1;
            let back = format!("ACL SETUSER app resetpass >{SECRET}");
            scene.raw.ask(&back).await;
            host.logs("redis is back").await;
        }
        let ended = host.drained().await;
        let written = [ended.stderr(), ended.stdout, trouble, pages.concat()].concat();
        assert!(written.contains("redis"), "nothing was written");
        assert!(!written.contains(SECRET), "way {n}");
        assert!(!written.contains("Tr0ub4dor"), "way {n}");
    }
    // Nor is a wrong password repeated.
    let wrong = ways[2]
        .clone()
        .variable("HOSTLER_REDIS_PASSWORD", "Wr0ng-Pass");
    let ended = wrong.end().await;
    ended.expect_code(64);
    assert!(!ended.stderr().contains("Wr0ng-Pass"));
    // No other file contains it.
    std::fs::remove_file(&password).unwrap();
    std::fs::remove_file(&config).unwrap();
    let mut found = Vec::new();
    files(dir.path(), &mut found);
    assert!(!String::from_utf8_lossy(&found).contains(SECRET));
    // Redis itself: names of clients, dead letters, keys.
    let clients = scene.raw.text("CLIENT LIST").await;
    assert!(!clients.contains(SECRET));
    for dead in scene.look().await.dead {
        assert!(!format!("{:?}", dead.fields).contains(SECRET));
    }
    // The other commands.
    let config = dir.path().join("check.toml");
    let handler = guest("scripted");
    let handler = handler.display();
    let text =
        format!("redis = \"{in_url}\"\nstream = \"s\"\ngroup = \"g\"\nhandler = \"{handler}\"\n");
    std::fs::write(&config, text).unwrap();
    let queue = format!("--redis {in_url} --stream orders --group workers");
    for line in [
        format!("check --config {}", config.display()),
        format!("check --json {queue} --handler {handler}"),
        format!("inspect {queue}"),
        format!("dlq peek --redis {in_url} orders:dead"),
    ] {
        let ended = command::run_line(&line).ok();
        assert!(!format!("{ended:?}").contains(SECRET), "{line}");
    }
}

/// Whether a process has a child.
fn has_child(pid: u32) -> bool {
    let parent_of = |stat: &str| -> Option<u32> {
        // The name may hold anything; behind it are the state and the parent.
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse().ok()
    };
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = entry.ok()?.path().join("stat");
        std::fs::read_to_string(stat).ok()
    });
    stats.filter_map(|stat| parent_of(&stat)).any(|p| p == pid)
}

#[tokio::test]
async fn a_signal_during_the_start_ends_it_with_exit_code_0() {
    let scene = Scene::new().await;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // Nothing is cached: the handler is compiled, in a child. An engine of JavaScript takes long enough to be seen.
        let cache = tempfile::tempdir().unwrap();
        let options = scene.host();
        let options = options.flag("handler", &language("js").display().to_string());
        let options = options.variable("XDG_CACHE_HOME", &cache.path().display().to_string());
        let host = options.start();
        eventually("the handler is compiled", async || has_child(host.pid())).await;
        host.signal(signal);
        let ended = host.ended().await;
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "{signal}");
        assert_eq!(ended.count(|line| line.message() == "ready"), 0);
    }
}
