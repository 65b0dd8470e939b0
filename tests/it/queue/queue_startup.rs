//! The checks at start: refusals and warnings.

use hostler::queue::kind::QueueOptions;
use hostler::queue::startup::{StartError, StartWarning};
use hostler::queue::stream::{Retention, StreamOptions, StreamQueue};
use hostler::queue::{Queue, Reply, SettleAction};
use hostler::redis::connection::Connector;
use hostler_tests::command::run_line;
use hostler_tests::guests::guest;
use hostler_tests::redis::{RedisOptions, eventually, free_port};

use crate::queue::queue_scene::{
    DEAD, FENCES, KEY, PARKED, Scene, connector, dead_letter, due, options,
};
use crate::scene::{cluster, discard, is_empty, orphaned, recorded, requeue, settle, settled};

/// The commands that a user for streams needs with `retention`. The two of `ACL` let the check at
/// start name a missing right.
const COMMANDS: &str = "+info +time +script|load +evalsha +type +exists +xreadgroup +xack \
    +xpending +xclaim +xrange +xadd +xlen +xtrim +xgroup|create +xgroup|delconsumer +xinfo|groups \
    +xinfo|consumers +xinfo|stream +zadd +zrem +zscore +zcard +zrange +zrangebyscore \
    +multi +exec +set +getrange +pexpire +acl|whoami +acl|dryrun";
/// The keys that it needs, as an ACL names them, and as the check names them.
const KEYS: [(&str, &str); 12] = [
    ("~orders", KEY),
    ("~orders:dead", DEAD),
    ("~{orders}:parked:*", PARKED),
    ("~{orders}:fences:workers", FENCES),
    ("~{orders}:held:*", HELD),
    ("~{orders}:late:workers", "{orders}:late:workers"),
    ("~{orders}:min-idle:*", TERMS),
    ("~{orders}:delayed", DELAYED),
    ("~{orders}:cycle", "{orders}:cycle"),
    ("~{orders}:written:workers", "{orders}:written:workers"),
    ("~{orders}:acted:*", "{orders}:acted:workers:h"),
    ("~{orders}:replies:*", "{orders}:replies:i"),
];
const HELD: &str = "{orders}:held:workers";
const DELAYED: &str = "{orders}:delayed";
const TERMS: &str = "{orders}:min-idle:workers";

fn commands() -> Vec<&'static str> {
    COMMANDS.split_whitespace().collect()
}

/// All keys but one.
fn keys_without(name: &str) -> String {
    let keys = KEYS.iter().filter(|(_, key)| *key != name);
    let rules: Vec<&str> = keys.map(|(rule, _)| *rule).collect();
    rules.join(" ")
}

/// A stream whose entries are trimmed: it needs the most rights.
fn trimming() -> StreamOptions {
    StreamOptions {
        retention: Retention::Acked,
        ..options()
    }
}

async fn check(
    connector: &Connector,
    options: &StreamOptions,
) -> Result<Vec<StartWarning>, StartError> {
    QueueOptions::Stream(options.clone()).check(connector).await
}

async fn check_default(scene: &Scene) -> Result<Vec<StartWarning>, StartError> {
    check(&scene.connector(), &options()).await
}

/// The rights that the check misses.
async fn missing(url: &str) -> (StartError, Vec<String>) {
    let error = check(&connector(url), &trimming()).await.unwrap_err();
    match &error {
        StartError::MissingRights { user, rules } => {
            assert_eq!(user, "bob");
            let rules = rules.clone();
            (error, rules)
        }
        _ => panic!("{error:?}"),
    }
}

/// A server with the user `bob`, who has these rights and all the keys.
async fn with_user(commands: &[&str]) -> (Scene, String) {
    let (keys, commands) = (keys_without(""), commands.join(" "));
    let rules = format!("bob on >secret {keys} {commands}");
    let scene = Scene::with(RedisOptions::default().user(&rules)).await;
    let url = format!("{}?user=bob&pass=secret", scene.url());
    (scene, url)
}

#[tokio::test]
async fn a_good_server_passes_with_its_warnings() {
    let scene = Scene::new().await;
    let warnings = check_default(&scene).await.unwrap();
    assert_eq!(warnings, [StartWarning::NoAppendOnlyFile]);
    for setting in ["maxmemory-policy allkeys-lru", "appendonly yes"] {
        scene.raw.ask(&format!("CONFIG SET {setting}")).await;
    }
    for more in ["", "?protocol=resp3"] {
        let url = format!("{}{more}", scene.url());
        let warnings = check(&connector(&url), &options()).await.unwrap();
        let policy = "allkeys-lru".to_owned();
        assert_eq!(warnings, [StartWarning::Evicts(policy)]);
    }
    // The check created nothing.
    assert_eq!(scene.keys().await, 0);
    // A server that has all keys already passes too.
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    settled(&host, &claims[0], 1, dead_letter()).await;
    settled(&host, &claims[1], 1, requeue(1)).await;
    check_default(&scene).await.unwrap();
}

#[tokio::test]
async fn keys_of_the_wrong_type_are_named() {
    let scene = Scene::new().await;
    for name in [KEY, DEAD, PARKED, HELD, DELAYED, TERMS] {
        scene.raw.ask(&format!("SADD {name} x")).await;
        let error = check_default(&scene).await.unwrap_err();
        let StartError::WrongType { key, found, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((key.as_str(), found.as_str()), (name, "set"));
        if name == KEY {
            let opened = StreamQueue::open(scene.connector(), options()).await;
            let error = opened.unwrap_err();
            assert!(matches!(error, StartError::WrongType { .. }), "{error:?}");
        }
        scene.delete(name).await;
    }
}

#[tokio::test]
async fn a_dead_letter_key_that_is_the_queue_is_refused() {
    let scene = Scene::new().await;
    let mut same = options();
    same.dead_letter.as_mut().unwrap().key = KEY.to_owned();
    let error = check(&scene.connector(), &same).await.unwrap_err();
    assert!(matches!(error, StartError::KeyIsSource { .. }), "{error:?}");
}

#[tokio::test]
async fn a_replica_is_refused_with_the_name_of_its_primary() {
    let scene = Scene::new().await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = check_default(&scene).await.unwrap_err();
    assert!(matches!(error, StartError::Replica { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn the_least_privileged_user_passes_and_each_missing_right_is_named() {
    let (scene, url) = with_user(&commands()).await;
    let grant = async |rule: &str| scene.raw.ask(&format!("ACL SETUSER bob {rule}")).await;
    check(&connector(&url), &trimming()).await.unwrap();
    for rule in commands() {
        if rule.starts_with("+acl") {
            continue;
        }
        grant(&rule.replacen('+', "-", 1)).await;
        let (error, rules) = missing(&url).await;
        assert_eq!(rules, [rule], "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("ACL SETUSER bob"), "{hint}");
        grant(rule).await;
    }
    for (_, name) in KEYS {
        grant(&format!("resetkeys {}", keys_without(name))).await;
        let (error, rules) = missing(&url).await;
        assert_eq!(rules, [format!("~{name}")], "{error}");
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_read_its_rights_passes() {
    let mut commands = commands();
    commands.retain(|rule| !rule.starts_with("+acl"));
    let (_scene, url) = with_user(&commands).await;
    check(&connector(&url), &options()).await.unwrap();
}

#[tokio::test]
async fn every_call_works_for_the_least_privileged_user() {
    let (scene, url) = with_user(&commands()).await;
    let open = async || StreamQueue::open(connector(&url), trimming()).await;
    let (host, other) = (open().await.unwrap(), open().await.unwrap());
    let claims = scene.read(&host, &["a", "b", "c", "d", "e"]).await;
    assert_eq!(recorded(&host, &claims[0], 1, 2).await, Reply::Done);
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    settled(&host, &claims[0], 2, dead_letter()).await;
    settled(&host, &claims[1], 1, requeue(1)).await;
    settled(&host, &claims[2], 1, discard()).await;
    settled(&host, &claims[3], 1, SettleAction::Leave { keep: 1 }).await;
    assert_eq!(due(&other, 9).await.len(), 1);
    assert_eq!(orphaned(&other, 9).await.len(), 1);
    scene.age(&host, claims[4].id, 1).await;
    assert_eq!(orphaned(&host, 9).await.len(), 1);
    other.acknowledge(&claims).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 5);
    scene.destroy_group().await;
    host.repair(&[]).await.unwrap();
    host.interrupt().await.unwrap();
    assert!(is_empty(&host).await);
    host.leave().await.unwrap();
}

#[tokio::test]
async fn on_a_cluster_the_queue_keys_must_share_a_slot_and_the_dead_letter_key_need_not() {
    let scene = Scene::with(cluster(RedisOptions::default())).await;
    scene.take_all_slots().await;
    let connector = scene.connector();
    let broken = StreamOptions::new("a}b", "g");
    let error = check(&connector, &broken).await.unwrap_err();
    assert!(matches!(error, StartError::BrokenTag { .. }), "{error:?}");
    check(&connector, &options()).await.unwrap();
    // A dead-letter key in another slot: the message is copied, then acknowledged.
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    for (count, expected) in [(2, Reply::Stolen), (1, Reply::Done), (1, Reply::Gone)] {
        let reply = settle(&host, &claims[0], count, dead_letter()).await;
        assert_eq!(reply, expected);
    }
    assert_eq!(scene.length(DEAD).await, 1);
    settled(&host, &claims[1], 1, requeue(1)).await;
    assert_eq!(due(&host, 9).await.len(), 1);
}

#[tokio::test]
async fn a_url_of_any_node_leads_to_the_node_that_has_the_key() {
    let bus = [free_port(), free_port()];
    let node = |bus: u16| {
        let options = cluster(RedisOptions::default());
        options.set("cluster-port", &bus.to_string()).start()
    };
    let (owner, other) = (node(bus[0]), node(bus[1]));
    let (raw, other_raw) = (owner.raw().await, other.raw().await);
    raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", owner.port(), bus[0]);
    other_raw.ask(&meet).await;
    eventually("the nodes know each other", async || {
        let info = other_raw.text("CLUSTER INFO").await;
        info.contains("cluster_state:ok")
    })
    .await;
    let queue = format!("--redis {} --stream orders", other.url());
    let handler = guest("scripted").display().to_string();
    run_line(&format!("publish {queue} --body ack")).ok();
    assert_eq!(raw.number("XLEN orders").await, 1);
    let line = format!("run {queue} --group g --handler {handler} --until-empty --summary json");
    let ended = run_line(&line);
    assert_eq!(ended.json()["acked"], 1);
    let said = ended.stderr.matches("this server is a node of a cluster");
    assert_eq!(said.count(), 1, "{ended:?}");
}
