//! An error of Redis comes with its cause and what to do, whichever command met it: one test for each row of the
//! table `host/redis/src/hint.rs`, on real servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_tests::command::{Ended, run};
use hostler_tests::redis::{RedisOptions, RedisServer, TlsOptions, eventually};

use crate::queue::queue_connection::Authority;
use crate::scene::cluster;

/// The command fails; the error says `what`, and the hint says `hint`.
fn hints(arguments: &str, what: &str, hint: &str) {
    let ended: Ended = run(arguments.split_whitespace());
    assert_ne!(ended.code, 0, "{arguments}: {ended:?}");
    let (error, said) = ended
        .stderr
        .rsplit_once("\nhint: ")
        .unwrap_or((&ended.stderr, ""));
    assert!(error.contains(what), "{arguments}: {what} in {ended:?}");
    assert!(said.contains(hint), "{arguments}: {hint} in {ended:?}");
    for secret in ["hunter2", "s3cret"] {
        assert!(!ended.stderr.contains(secret), "{ended:?}");
    }
}

/// Both a command, and a host that starts.
fn both_hint(redis: &str, what: &str, hint: &str) {
    let handler = hostler_tests::guests::guest("scripted");
    let run = format!(
        "run --stream orders --group g --handler {}",
        handler.display()
    );
    for command in ["publish --stream orders --body x", &run] {
        hints(&format!("{command} {redis}"), what, hint);
    }
}

/// A server with this certificate.
fn secure(ca: &Authority, (cert, key): (PathBuf, PathBuf), clients: bool) -> RedisServer {
    let tls = TlsOptions {
        ca: ca.ca(),
        cert,
        key,
        clients,
    };
    RedisOptions::default().tls(tls).start()
}

#[test]
fn errors_of_certificates_name_the_setting_that_mends_them() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let theirs = Authority::new(dir.path(), "theirs");
    let server = secure(&ours, ours.issue("localhost"), true);
    let ca = ours.ca().display().to_string();
    let wrong = theirs.ca().display().to_string();
    let at = |name: &str| format!("--redis rediss://{name}:{}", server.port());
    let localhost = at("localhost");
    both_hint(&localhost, "UnknownIssuer", "with `redis_ca`");
    both_hint(
        &format!("{localhost} --redis-ca {wrong}"),
        "certificate",
        "with `redis_ca`",
    );
    let ip = format!("{} --redis-ca {ca}", at("127.0.0.1"));
    both_hint(&ip, "not valid for name", "other names");
    let anonymous = format!("{localhost} --redis-ca {ca}");
    both_hint(&anonymous, "alert", "give `redis_cert` and `redis_key`");
    let (cert, key) = theirs.issue("client");
    let (cert, key) = (cert.display(), key.display());
    let foreign = format!("{anonymous} --redis-cert {cert} --redis-key {key}");
    both_hint(&foreign, "alert", "`tls-ca-cert-file`");
    let plain = format!("--redis redis://localhost:{}", server.port());
    both_hint(&plain, "hung up before it answered", "write `rediss://`");

    // The authority itself is no server.
    let (cert, key) = ours.own();
    let authority = secure(&ours, (cert, key), false);
    let redis = format!(
        "--redis rediss://localhost:{} --redis-ca {ca}",
        authority.port()
    );
    both_hint(&redis, "CaUsedAsEndEntity", "give it one of its own");

    let expired = secure(&ours, ours.issue_expired("localhost"), false);
    let redis = format!(
        "--redis rediss://localhost:{} --redis-ca {ca}",
        expired.port()
    );
    both_hint(&redis, "xpired", "renew the server's certificate");

    let without = RedisOptions::default().tcp().start();
    let redis = format!(
        "--redis rediss://localhost:{} --redis-ca {ca}",
        without.port()
    );
    both_hint(&redis, "does this port speak TLS?", "does not speak TLS");

    let encrypted = encrypted(dir.path());
    let (cert, _) = ours.issue("other");
    let (cert, key) = (cert.display(), encrypted.display());
    let redis = format!("{anonymous} --redis-cert {cert} --redis-key {key}");
    both_hint(&redis, "it is encrypted", "openssl pkey");
    let none = dir.path().join("none.pem");
    std::fs::write(&none, "no certificate").unwrap();
    let none = none.display();
    both_hint(
        &format!("{localhost} --redis-ca {none}"),
        "none.pem",
        "correct the path",
    );
}

/// A private key that a password protects.
fn encrypted(dir: &Path) -> PathBuf {
    let path = dir.join("encrypted.pem");
    let made = Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-aes256", "-pass", "pass:hunter2", "-out"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    path
}

#[test]
fn logins_that_are_refused_name_the_login() {
    let server = RedisOptions::default()
        .set("requirepass", "hunter2")
        .start();
    let url = format!("--redis {}", server.url());
    both_hint(&url, "NOAUTH", "`redis_password_file`");
    let wrong = format!("--redis {}?pass=s3cret", server.url());
    both_hint(&wrong, "WRONGPASS", "correct the user or the password");
    let plain = RedisServer::start();
    let needless = format!("--redis {}?pass=s3cret", plain.url());
    both_hint(&needless, "no password", "correct the user or the password");
    let database = format!("--redis {}?db=99", plain.url());
    both_hint(&database, "SELECT", "correct the database");
}

#[test]
fn a_password_with_a_raw_sign_is_refused_by_that() {
    for url in [
        "redis://:s3cret#1@localhost",
        "redis://:s3cret/1@localhost:6379/0",
        "rediss://bob:s3cret?1@localhost",
        "redis+cluster://:s3cret#1@a,b",
    ] {
        let ended = run(["publish", "--redis", url, "--stream", "s", "--body", "x"]);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(
            ended.stderr.contains("write `%2F`, `%3F` or `%23`"),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
    }
}

#[test]
fn commands_that_a_server_has_by_another_name_are_named() {
    for command in ["INFO", "XCLAIM", "EVALSHA", "SCRIPT", "XACK"] {
        let server = RedisOptions::default()
            .words("rename-command", &[command, ""])
            .start();
        let handler = hostler_tests::guests::guest("scripted");
        let (url, handler) = (server.url(), handler.display());
        let run = format!("run --redis {url} --stream orders --group g --handler {handler}");
        hints(&run, command, "`rename-command`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_take_no_writes_say_why() {
    let server = RedisOptions::default()
        .set("dbfilename", "snapshot")
        .set("min-replicas-to-write", "1")
        .start();
    let raw = server.raw().await;
    let publish = format!("publish --redis {} --stream orders --body x", server.url());
    hints(&publish, "NOREPLICAS", "`min-replicas-to-write`");
    raw.ask("CONFIG SET min-replicas-to-write 0").await;

    raw.ask("CONFIG SET maxmemory 1").await;
    hints(&publish, "OOM", "raise `maxmemory`");
    raw.ask("CONFIG SET maxmemory 0").await;

    // A snapshot that fails.
    raw.ask("CONFIG SET stop-writes-on-bgsave-error yes").await;
    raw.ask_words(&[b"CONFIG", b"SET", b"save", b"3600 1"])
        .await;
    std::fs::create_dir(server.dir().join("snapshot")).unwrap();
    raw.ask("SET some key").await;
    raw.ask("BGSAVE").await;
    eventually("the snapshot has failed", async || {
        raw.text("INFO persistence")
            .await
            .contains("rdb_last_bgsave_status:err")
    })
    .await;
    hints(&publish, "MISCONF", "cannot save its data");
    let handler = hostler_tests::guests::guest("scripted");
    let (url, handler) = (server.url(), handler.display());
    let run = format!("run --redis {url} --stream orders --group g --handler {handler}");
    hints(&run, "MISCONF", "cannot save its data");
    raw.ask("CONFIG SET stop-writes-on-bgsave-error no").await;

    raw.ask("REPLICAOF 127.0.0.1 1").await;
    hints(&publish, "READONLY", "name the primary");
    raw.ask("REPLICAOF NO ONE").await;
    raw.ask("SET word text").await;
    let publish = format!("publish --redis {} --stream word --body x", server.url());
    hints(&publish, "WRONGTYPE", "another key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_blocks_a_server_is_named() {
    let server = RedisOptions::default()
        .set("busy-reply-threshold", "1")
        .start();
    let (busy, raw) = (server.raw().await, server.raw().await);
    let blocked = tokio::spawn(async move {
        let endless = b"while true do end";
        busy.try_ask_words(&[b"EVAL", endless, b"0"]).await
    });
    eventually("the server is busy", async || {
        raw.try_ask("PING")
            .await
            .is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    let publish = format!("publish --redis {} --stream orders --body x", server.url());
    tokio::task::spawn_blocking(move || hints(&publish, "BUSY", "`SCRIPT KILL`"))
        .await
        .unwrap();
    raw.ask("SCRIPT KILL").await;
    assert!(blocked.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_not_ready_say_so() {
    let away = RedisOptions::default()
        .words("replicaof", &["127.0.0.1", "1"])
        .set("replica-serve-stale-data", "no")
        // A replica that takes no writes says that first.
        .set("replica-read-only", "no")
        .start();
    // A host refuses each replica at its start.
    let publish = format!("publish --stream orders --body x --redis {}", away.url());
    hints(&publish, "MASTERDOWN", "wait until it is ready");

    let without_slots = cluster(RedisOptions::default()).start();
    let url = format!("--redis {}", without_slots.url());
    both_hint(&url, "CLUSTERDOWN", "`CLUSTER INFO`");

    let crowded = RedisServer::start();
    let raw = crowded.raw().await;
    raw.ask("CONFIG SET maxclients 1").await;
    let url = format!("--redis {}", crowded.url());
    both_hint(&url, "max number of clients", "raise `maxclients`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_is_waited_for() {
    // Each key takes 30 ms to load, and the server looks at its clients in between.
    let mut server = RedisOptions::default()
        .set("key-load-delay", "30000")
        .set("loading-process-events-interval-bytes", "1024")
        .start();
    let raw = server.raw().await;
    for n in 0..300 {
        let filler = "x".repeat(1024);
        raw.ask(&format!("SET filler:{n} {filler}")).await;
    }
    raw.ask("SAVE").await;
    let url = server.url();
    let restarted = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    eventually("a command says that it loads", async || {
        let ended = run([
            "publish", "--redis", &url, "--stream", "orders", "--body", "x",
        ]);
        ended.stderr.contains("LOADING") && ended.stderr.contains("wait until it is ready")
    })
    .await;
    drop(restarted.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_other_slots_are_named_with_a_key_that_fits() {
    let server = cluster(RedisOptions::default()).start();
    let raw = server.raw().await;
    raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster serves", async || {
        raw.text("CLUSTER INFO").await.contains("cluster_state:ok")
    })
    .await;
    let handler = hostler_tests::guests::guest("scripted");
    let (url, handler) = (server.url(), handler.display());
    let run = format!("run --redis {url} --list jobs --reliable --handler {handler} --until-empty");
    hints(
        &format!("{run} --recovery-zset jobs:claims"),
        "CROSSSLOT",
        "`{jobs}:claims`",
    );
    let ended: Ended =
        hostler_tests::command::run_line(&format!("{run} --recovery-zset {{jobs}}:claims"));
    ended.ok();
}

#[test]
fn a_right_that_a_command_lacks_is_named() {
    let server = RedisOptions::default()
        .user("bob on nopass ~* &* +@all -xadd -hgetall")
        .start();
    let url = format!("{}?user=bob&pass=x", server.url());
    hints(
        &format!("publish --redis {url} --stream orders --body x"),
        "NOPERM",
        "`+xadd`",
    );
    hints(&format!("policy get --redis {url}"), "NOPERM", "`+hgetall`");
}

#[test]
fn a_key_below_a_table_is_told_where_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("orders.toml");
    for (text, hint) in [
        (
            "[dead_letter]\nkey = 'd'\nstream = 'orders'\n",
            "above the first `[table]`",
        ),
        (
            "[[grant.http]]\nhost = 'a'\nredis = 'redis://h'\n",
            "above the first `[table]`",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = run(["check", "--config", &file.display().to_string()]);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(hint), "{ended:?}");
    }
}

#[test]
fn a_version_in_the_environment_ends_nothing() {
    let server = RedisServer::start();
    let mut command = hostler_tests::command::hostler([
        "publish",
        "--redis",
        &server.url(),
        "--stream",
        "orders",
        "--body",
        "x",
    ]);
    let ended = hostler_tests::command::end(command.env("HOSTLER_VERSION", "1.2.3")).ok();
    assert!(ended.stderr.contains("HOSTLER_VERSION"), "{ended:?}");
}
