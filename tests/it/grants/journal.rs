//! Journals: a later attempt at a message gets the answers that an earlier one has had, and its requests are not sent
//! again. The guest makes its calls as the message says; the server counts them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hostler::publish::{Canceller, Stream};
use hostler_tests::checker::DeadLetter;
use hostler_tests::command::{end, hostler, run};
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};
use hostler_tests::web::{Seen, Web};

use crate::grants::outbound_scene::{rule, url};
use crate::runtime::e2e_scene::Scene;

/// A queue, a server that its handler calls, and the file that grants it.
pub(super) struct Journaled {
    pub(super) scene: Scene,
    pub(super) web: Web,
    config: PathBuf,
}

impl Journaled {
    /// `more`: further keys of the rule.
    pub(super) async fn new(more: &str) -> Self {
        Self::with(RedisOptions::default(), more).await
    }

    /// The same, on such a server.
    pub(super) async fn with(options: RedisOptions, more: &str) -> Self {
        let (scene, web) = (Scene::with(options).await, Web::start().await);
        let config = scene.server.dir().join("orders.toml");
        let rule = rule(&web, &format!("name = \"api\"\njournal = true\n{more}"));
        let secret = "[grant.secret]\nplanted = { variable = \"PLANTED\", expose = true }\n";
        fs::write(&config, format!("{rule}\n{secret}")).unwrap();
        Self { scene, web, config }
    }

    pub(super) fn host(&self) -> HostOptions {
        self.scene
            .host()
            .cap(5)
            .flag(
                "handler",
                &hostler_tests::guests::guest("outbound")
                    .display()
                    .to_string(),
            )
            .flag("config", &self.config.display().to_string())
            .flags("backoff-first=5ms min-idle=500ms")
            .variable("PLANTED", "pl4nted-s3cr3t")
            .admin()
    }

    /// The action of the guest that sends a request without an answer.
    pub(super) fn send(&self, method: &str, path: &str, body: &str) -> String {
        format!("send:{method}|{}|b={body}", url(&self.web, path))
    }

    /// How often the server got each body.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for seen in self.web.seen() {
            *counts
                .entry(String::from_utf8(seen.body).unwrap())
                .or_default() += 1;
        }
        counts
    }

    fn keys_of(&self, body: &str) -> Vec<String> {
        let those = |seen: &Seen| seen.body == body.as_bytes();
        let key = |seen: Seen| seen.header("idempotency-key").unwrap().to_owned();
        self.web.seen().into_iter().filter(those).map(key).collect()
    }

    /// The keys of journals that are there.
    pub(super) async fn journals(&self) -> Vec<String> {
        let found = self.scene.raw.ask("KEYS *:journal*").await;
        redis::from_redis_value(found).unwrap()
    }

    pub(super) async fn is_gone(&self) {
        assert_eq!(self.journals().await, Vec::<String>::new());
    }
}

pub(super) fn once(bodies: &[&str]) -> BTreeMap<String, usize> {
    bodies.iter().map(|body| ((*body).to_owned(), 1)).collect()
}

#[tokio::test]
async fn a_later_attempt_gets_the_recorded_answers_and_makes_the_other_calls() {
    let mut all = Journaled::new("").await;
    let [one, two, three] = ["one", "two", "three"].map(|body| all.send("POST", "/ok", body));
    // As a version that makes another call first.
    let new = all.send("POST", "/ok", "new");
    let steps = format!("{one}+{two}+trap,{one}+{two}+{three}+nack,{new}+{two}+{one}+{three}+ack");
    all.scene.publish(&steps).await;
    // The same by `wasi:http`: the answers arrive as they were.
    let standard =
        |body: &str| format!("wasi:POST|http|api.test:{}|/body|b={body}", all.web.port());
    let first = all.send("POST", "/body", "four");
    let steps = format!("{first}+trap,{}", standard("five"));
    let dropped = all.scene.publish(&steps).await;
    let host = all.host().ready().await;
    let look = all.scene.emptied().await;
    let wanted = once(&["one", "two", "three", "new", "four", "five"]);
    assert_eq!(all.counts(), wanted);
    let detail = look.dead_letters_of(&dropped)[0]
        .header("x-dead-letter-detail")
        .unwrap()
        .to_owned();
    assert_eq!(detail, "200 five");
    let keys = ["one", "two", "three"].map(|body| all.keys_of(body).remove(0));
    let unique: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(unique.len(), 3, "{keys:?}");
    all.is_gone().await;
    host.drained().await;
}

/// Between two attempts, and while one runs.
#[tokio::test]
async fn a_cancelled_message_leaves_no_journal() {
    let mut all = Journaled::new("").await;
    let host = all
        .host()
        .flags("backoff-first=10m backoff-max=10m timeout=10m")
        .ready()
        .await;
    for (body, end) in [("one", "nack"), ("two", "sleep:600000")] {
        let call = all.send("POST", "/ok", body);
        let id = all.scene.publish(&format!("{call}+{end}")).await;
        eventually("the call is recorded", async || {
            all.counts().contains_key(body) && !all.journals().await.is_empty()
        })
        .await;
        if end == "nack" {
            let parked = "ZCARD {orders}:parked:workers";
            eventually("it is parked", async || {
                all.scene.raw.number(parked).await == 1
            })
            .await;
        }
        let canceller = Canceller::new(&all.scene.connector(), Stream::new("orders")).unwrap();
        let done = canceller.cancel(&id).await.unwrap();
        assert!(
            done.iter().all(|done| done.verdict.is_cancelled()),
            "{done:?}"
        );
        all.is_gone().await;
    }
    host.drained().await;
    // An answer that comes late is not kept.
    all.is_gone().await;
    assert_eq!(all.counts(), once(&["one", "two"]));
}

#[tokio::test]
async fn the_note_of_acknowledged_messages_holds_one_request() {
    let mut all = Journaled::new("").await;
    let host = all.host().ready().await;
    for body in ["one", "two", "three"] {
        let call = all.send("POST", "/ok", body);
        all.scene.publish(&format!("{call}+ack")).await;
        all.scene.emptied().await;
    }
    let keys: Vec<String> =
        redis::from_redis_value(all.scene.raw.ask("KEYS {orders}:acted:*").await).unwrap();
    let [key] = &keys[..] else {
        panic!("{keys:?}");
    };
    let note: String =
        redis::from_redis_value(all.scene.raw.ask(&format!("GET {key}")).await).unwrap();
    // The number of the request, and the last message.
    assert_eq!(note.split_whitespace().count(), 2, "{note}");
    host.drained().await;
}

#[tokio::test]
async fn a_recorded_answer_reaches_the_guest_as_it_was() {
    let mut all = Journaled::new("").await;
    let port = all.web.port();
    let mut ids = Vec::new();
    // `/echo` answers the head of the request, its key included: another request would have another answer.
    for call in [
        format!("POST|{}|b=x", url(&all.web, "/echo")),
        format!(
            "POST|{}|b=y|h=idempotency-key=charge",
            url(&all.web, "/echo")
        ),
    ] {
        ids.push(
            all.scene
                .publish(&format!("send:{call}+trap,fetch:{call}"))
                .await,
        );
    }
    let call = format!("wasi:POST|http|api.test:{port}|/echo|b=z");
    // Its first attempt ends with a drop reason: it dies there, and nothing is recorded beyond that.
    ids.push(all.scene.publish(&call).await);
    let host = all.host().ready().await;
    let look = all.scene.emptied().await;
    assert_eq!(all.counts(), once(&["x", "y", "z"]));
    for id in ids {
        let dead = look.dead_letters_of(&id);
        let detail = dead[0].header("x-dead-letter-detail").unwrap();
        assert!(detail.starts_with("200 POST /echo"), "{detail}");
    }
    let key = all.keys_of("y").remove(0);
    assert!(key.ends_with("#=charge"), "{key}");
    all.is_gone().await;
    host.drained().await;
}

#[tokio::test]
async fn answers_that_are_not_kept_are_asked_for_again_with_the_same_key() {
    let mut all = Journaled::new("journal_status = [\"2xx\", \"409\"]\n").await;
    let polled = format!("send:GET|{}|h=x=poll", url(&all.web, "/ok"));
    let calls = [
        "/status/503",
        "/status/401",
        "/status/409",
        "/status/204",
        "/size/300000",
    ]
    .map(|path| all.send("POST", path, &path.replace('/', "-")));
    let steps = format!("{0}+{polled}+nack,{0}+{polled}+nack,ack", calls.join("+"));
    all.scene.publish(&steps).await;
    let host = all.host().ready().await;
    all.scene.emptied().await;
    let mut wanted = once(&["-status-409", "-status-204", "-size-300000"]);
    wanted.extend(["-status-503", "-status-401", ""].map(|body| (body.to_owned(), 2)));
    assert_eq!(all.counts(), wanted);
    for body in ["-status-503", "-status-401"] {
        let keys = all.keys_of(body);
        assert_eq!(keys[0], keys[1], "{body}");
    }
    all.is_gone().await;
    // The calls that the last attempt has not made are logged.
    host.logs("the attempt that acknowledged has not made calls that an earlier one has recorded")
        .await;
    host.drained().await;
}

/// A host is killed while a request is under way; the next one has the message.
async fn killed_in_a_call(rule: &str) -> (Journaled, String) {
    let mut all = Journaled::new(rule).await;
    let done = all.send("POST", "/ok", "done");
    let call = format!("fetch:POST|{}|b=open", url(&all.web, "/never"));
    let answered = format!("fetch:POST|{}|b=other", url(&all.web, "/ok"));
    let id = all
        .scene
        .publish(&format!("{done}+{call},{done}+{call},{answered}"))
        .await;
    let host = all.host().flag("timeout", "20s").ready().await;
    eventually("the request is under way", async || {
        all.counts().contains_key("open")
    })
    .await;
    host.kill().await;
    assert_eq!(all.journals().await.len(), 2);
    (all, id)
}

#[tokio::test]
async fn an_open_request_is_sent_again_with_its_key() {
    let (all, _) = killed_in_a_call("").await;
    let host = all.host().ready().await;
    eventually("it is sent again", async || all.keys_of("open").len() == 2).await;
    let keys = all.keys_of("open");
    assert_eq!(keys[0], keys[1]);
    assert_eq!(all.counts()["done"], 1);
    host.kill().await;
}

#[tokio::test]
async fn with_fail_a_request_leaves_at_most_once() {
    let (all, id) = killed_in_a_call("unknown = \"fail\"\n").await;
    let host = all.host().ready().await;
    let look = all.scene.emptied().await;
    let wanted = once(&["done", "open"]);
    // It was refused, and so is any other request of the rule.
    assert_eq!(all.counts(), wanted);
    let detail = look.dead_letters_of(&id)[0]
        .header("x-dead-letter-detail")
        .unwrap()
        .to_owned();
    let why = "an earlier attempt sent this request; its answer is not known";
    assert_eq!(detail, format!("Error::Protocol(\"{why}\")"));
    all.is_gone().await;
    host.drained().await;
}

#[tokio::test]
async fn every_exit_deletes_the_journal_and_no_secret_is_in_it() {
    let mut all = Journaled::new("headers.authorization = \"Bearer ${secret:planted}\"\n").await;
    let call = all.send("POST", "/ok", "x");
    let body = |n: usize, rest: &str| format!("{}+{rest}", call.replace("b=x", &format!("b={n}")));
    for (n, rest) in ["ack", "drop", "trap", "nack:60000", "nack,ack"]
        .iter()
        .enumerate()
    {
        all.scene.publish(&body(n, rest)).await;
    }
    // The server repeats the head of the request, and the secret with it: this answer is not recorded.
    let leak = all.send("POST", "/echo", "leak");
    all.scene.publish(&format!("{leak}+nack,{leak}+ack")).await;
    let host = all.host().ready().await;
    eventually("all but one are settled", async || {
        let look = all.scene.look().await;
        look.unread.is_empty() && look.pending.len() == 1 && look.parked.len() == 1
    })
    .await;
    let mut counts = all.counts();
    assert_eq!(counts.remove("leak"), Some(2));
    assert!(
        counts.values().all(|n| *n == 1) && counts.len() == 5,
        "{counts:?}"
    );
    let keys = all.keys_of("leak");
    assert_eq!(keys[0], keys[1]);
    eventually("one journal and the index are left", async || {
        all.journals().await.len() == 2
    })
    .await;
    for key in all.journals().await {
        let dump = all.scene.raw.ask(&format!("DUMP {key}")).await;
        let dump: Vec<u8> = redis::from_redis_value(dump).unwrap();
        assert!(!dump.windows(6).any(|part| part == b"pl4nte"));
    }
    host.logs("an answer holds a secret, so it is not recorded: the next attempt sends the request again, with the same key")
        .await;
    let dead = DeadLetter::all(&all.scene.raw, "orders:dead").await;
    let fields = dead.iter().flat_map(|dead| &dead.fields);
    let fields: Vec<&[u8]> = fields.map(|(_, value)| &value[..]).collect();
    assert!(fields.len() > 3, "{dead:?}");
    let logged = host.drained().await.stderr();
    for text in [&fields.concat(), logged.as_bytes()] {
        assert!(!text.windows(6).any(|part| part == b"pl4nte"), "{logged}");
    }
}

#[tokio::test]
async fn a_journal_is_refused_where_it_cannot_hold() {
    let all = Journaled::new("").await;
    let refused = async |options: HostOptions, why: &str| {
        let ended = options.end().await;
        ended.expect_code(64);
        assert!(ended.stderr().contains(why), "{why}: {}", ended.stderr());
    };
    let list = all
        .host()
        .without("stream")
        .without("group")
        .without("dead-letter")
        .without("max-deliveries");
    refused(list.flag("list", "jobs"), "no message comes a second time").await;
    let batches = hostler_tests::guests::guest("acting-batch")
        .display()
        .to_string();
    let grants = all
        .scene
        .host()
        .flag("handler", &batches)
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag(
            "grant-key-value",
            r#"{"prefix":"{orders}:kv:","journal":true}"#,
        );
    let ended = grants.end().await;
    ended.expect_code(65);
    assert!(
        ended.stderr().contains("a journal belongs to one message"),
        "{}",
        ended.stderr()
    );
    all.scene
        .raw
        .ask("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    refused(all.host(), "maxmemory-policy allkeys-lru").await;
    all.scene
        .raw
        .ask("CONFIG SET maxmemory-policy noeviction")
        .await;
    // A host of the last release says nothing about journals.
    let old = r#"{"consumer":"old-1","group":"workers","hostler":"0.1.0","at_ms":1,"accepts_deploys":true,"not_ready":[],"handler":{"current":{"digest":"sha256:0","origin":"file"},"previous":null,"canary":null,"refused":null}}"#;
    all.scene
        .raw
        .ask_words(&[b"SET", b"{orders}:host:old-1", old.as_bytes()])
        .await;
    all.scene.raw.ask("ZADD {orders}:hosts 1 old-1").await;
    refused(
        all.host(),
        "the host `old-1` of the queue is too old to know journals",
    )
    .await;
}

#[tokio::test]
async fn a_dead_letter_takes_its_journal_along_and_a_replay_repeats_what_is_forgotten() {
    let mut all = Journaled::new("unknown = \"fail\"\n").await;
    let one = all.send("POST", "/ok", "one");
    let charge = format!(
        "send:POST|{}|b=two|h=idempotency-key=charge",
        url(&all.web, "/ok")
    );
    // Each replay begins with attempt 1.
    all.scene.publish(&format!("{one}+{charge}+drop")).await;
    let host = all.host().ready().await;
    let redis = all.scene.server.url();
    let died = async |all: &Journaled, times: usize| {
        eventually("it has died again", async || {
            // Its id in the queue is another one after each replay.
            let dead = DeadLetter::all(&all.scene.raw, "orders:dead").await;
            dead.len() == 1
                && dead[0].header("x-replayed").unwrap_or("0") == (times - 1).to_string()
        })
        .await;
        all.is_gone().await;
        all.counts()
    };
    assert_eq!(died(&all, 1).await, once(&["one", "two"]));
    let replay = |more: &[&str]| {
        let words = ["dlq", "replay", "--redis", &redis, "orders:dead"];
        run(words.iter().chain(more)).ok();
    };
    replay(&[]);
    assert_eq!(died(&all, 2).await, once(&["one", "two"]));
    replay(&["--forget", "charge"]);
    let mut wanted = once(&["one", "two"]);
    wanted.insert("two".to_owned(), 2);
    assert_eq!(died(&all, 3).await, wanted);
    replay(&["--journal", "drop"]);
    wanted.extend([("one".to_owned(), 2), ("two".to_owned(), 3)]);
    assert_eq!(died(&all, 4).await, wanted);
    let keys = all.keys_of("two");
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    host.drained().await;
}

#[tokio::test]
async fn a_reliable_list_has_journals_too() {
    let all = Journaled::new("").await;
    let options = all
        .host()
        .without("stream")
        .without("group")
        .flags("list=orders reliable=true");
    let [one, two] = ["one", "two"].map(|body| all.send("POST", "/ok", body));
    let open = format!("send:POST|{}|b=open", url(&all.web, "/never"));
    let pushed = async |body: &str| {
        all.scene
            .raw
            .ask_words(&[b"LPUSH", b"orders", body.as_bytes()])
            .await;
    };
    // Put back, dead-lettered and replayed, and taken over from a host that is killed.
    pushed(&format!("{one}+trap,{one}+{two}+nack:20,{one}+{two}+drop")).await;
    let host = options.ready().await;
    let dead = async || {
        let length = all.scene.raw.ask("LLEN orders:dead").await;
        redis::from_redis_value::<u64>(length).unwrap()
    };
    eventually("it is dead", async || dead().await == 1).await;
    assert_eq!(all.counts(), once(&["one", "two"]));
    all.is_gone().await;
    let redis = all.scene.server.url();
    run(["dlq", "replay", "--redis", &redis, "orders:dead"]).ok();
    eventually("it is dead again", async || {
        dead().await == 1 && host.count(|line| line.start().is_some()) >= 6
    })
    .await;
    assert_eq!(all.counts(), once(&["one", "two"]));
    pushed(&format!("{}+{open}", all.send("POST", "/ok", "three"))).await;
    eventually("the request is under way", async || {
        all.counts().contains_key("open")
    })
    .await;
    host.kill().await;
    let next = options.ready().await;
    eventually("it is sent again", async || all.keys_of("open").len() == 2).await;
    let keys = all.keys_of("open");
    assert_eq!((&keys[0], all.counts()["three"]), (&keys[1], 1));
    next.kill().await;
}

#[tokio::test]
async fn a_value_is_remembered_whatever_becomes_of_the_attempt() {
    let mut scene = Scene::new().await;
    let options = scene
        .host()
        .cap(9)
        .flag(
            "handler",
            &hostler_tests::guests::guest("durable")
                .display()
                .to_string(),
        )
        .flag("grant-journal", "{}")
        .flags("backoff-first=5ms min-idle=500ms timeout=1m");
    let ends = [
        ("remember:id=1+trap,remember:other=x+nack,recall:id", "1"),
        ("remember:id=1+remember:id=2+nack:5,recall:id", "2"),
        ("recall:id", "nothing"),
        ("remember:=x", "a name has 1 to 200 printable bytes"),
        (
            "large:300000",
            "the journal of the message is full (1000 records, 262144 bytes)",
        ),
        ("once:a=1+trap,once:a=2+recall:a", "1"),
    ];
    let mut ids = Vec::new();
    for (body, _) in ends {
        ids.push(scene.publish(body).await);
    }
    let slow = scene
        .publish("once:a=first+sleep:60000,once:a=second+recall:a")
        .await;
    let host = options.ready().await;
    host.starts(ends.len() + 1).await;
    eventually(
        "only the slow one is left, with what it remembers",
        async || {
            let look = scene.look().await;
            let journals = scene.raw.ask("KEYS *:journal*").await;
            let journals: Vec<String> = redis::from_redis_value(journals).unwrap();
            look.unread.is_empty() && look.pending.len() == 1 && journals.len() == 2
        },
    )
    .await;
    host.kill().await;
    let host = options.ready().await;
    let look = scene.emptied().await;
    let detail = |id: &str| {
        let dead = look.dead_letters_of(id);
        dead[0].header("x-dead-letter-detail").unwrap().to_owned()
    };
    for ((body, wanted), id) in ends.iter().zip(&ids) {
        assert_eq!(detail(id), *wanted, "{body}");
    }
    assert_eq!(detail(&slow), "first");
    let left = scene.raw.ask("KEYS *:journal*").await;
    let left: Vec<String> = redis::from_redis_value(left).unwrap();
    assert!(left.is_empty(), "{left:?}");
    host.drained().await;
}

#[tokio::test]
async fn records_are_listed_and_counted() {
    let mut all = Journaled::new("").await;
    let call = format!(
        "send:POST|{}|b=pr1vate|h=idempotency-key=charge",
        url(&all.web, "/body")
    );
    let held = all.scene.publish(&format!("{call}+nack:60000")).await;
    let dead = all.scene.publish(&format!("{call}+drop")).await;
    let host = all.host().ready().await;
    eventually("one waits, and one is dead", async || {
        let dead = DeadLetter::all(&all.scene.raw, "orders:dead").await;
        let parked = all.scene.raw.number("ZCARD {orders}:parked:workers").await;
        dead.len() == 1 && parked == 1
    })
    .await;
    let redis = all.scene.server.url();
    let json = |words: &[&str]| {
        let ended = run(words.iter().chain(&["--redis", &redis, "--json"])).ok();
        assert!(!ended.stdout.contains("\"pr1vate"), "{}", ended.stdout);
        ended.json()
    };
    for id in [&held, &dead] {
        let traced = json(&["trace", id]);
        // The entry of a dead letter stays in the stream: the dead letter comes behind it.
        let found = traced["found"].as_array().unwrap();
        let record = &found.last().unwrap()["journal"][0];
        assert_eq!(record["status"], "200", "{traced}");
        assert_eq!(record["name"], "key:charge");
        assert!(record["bytes"].as_u64().unwrap() > 0 && record["at_ms"].as_u64().unwrap() > 0);
        let text = run(["trace", "--redis", &redis, id]).ok().stdout;
        assert!(text.contains("recorded call"), "{text}");
    }
    let inspected = json(&["inspect", "orders"]);
    assert_eq!(inspected["journals"], 1, "{inspected}");
    let text = run(["inspect", "--redis", &redis, "orders"]).ok().stdout;
    assert!(
        text.lines()
            .any(|line| line.starts_with("journals") && line.ends_with(" 1")),
        "{text}"
    );
    assert_eq!(json(&["queues"])[0]["journals"], 1);
    host.drained().await;
}

#[tokio::test]
async fn a_replayed_call_is_said_in_the_log() {
    let mut all = Journaled::new("").await;
    let call = all.send("POST", "/ok", "x");
    all.scene.publish(&format!("{call}+nack,{call}+ack")).await;
    let host = all.host().ready().await;
    all.scene.emptied().await;
    host.logs("calls of the attempt got the answers that an earlier one has recorded")
        .await;
    host.drained().await;
}

/// A poll that finds a server away, and a login with an old secret: the attempts go on until both answer well.
#[tokio::test]
async fn a_poll_and_an_old_secret_converge_and_the_charge_is_made_once() {
    let mut all = Journaled::new("headers.authorization = \"Bearer ${secret:planted}\"\n").await;
    let token = all.scene.server.dir().join("token");
    fs::write(&token, "old").unwrap();
    let config = fs::read_to_string(&all.config).unwrap();
    let file = format!("file = \"{}\"", token.display());
    fs::write(&all.config, config.replace("variable = \"PLANTED\"", &file)).unwrap();
    all.web.away(true);
    let need = |path: &str, body: &str| all.send("POST", path, body).replace("send:", "need:");
    let calls = [
        need("/ok", "charge"),
        need("/gate", "poll"),
        need("/bearer/new", "login"),
        need("/ok", "receipt"),
    ];
    all.scene.publish(&calls.join("+")).await;
    let host = all
        .host()
        .cap(1_000)
        .flag("backoff-max", "50ms")
        .ready()
        .await;
    let sent = |body: &str| all.keys_of(body).len();
    eventually("it polls", async || sent("poll") >= 3).await;
    all.web.away(false);
    eventually("it logs in", async || sent("login") >= 3).await;
    fs::write(&token, "new").unwrap();
    all.scene.emptied().await;
    let counts = all.counts();
    assert_eq!((counts["charge"], counts["receipt"]), (1, 1), "{counts:?}");
    // The attempts before the last one asked with the old secret, each under one key.
    for body in ["poll", "login"] {
        let keys = all.keys_of(body);
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
    let logins = all.web.seen();
    let logins = logins.iter().filter(|seen| seen.body == b"login");
    let secrets: Vec<_> = logins.map(|seen| seen.header("authorization")).collect();
    assert_eq!(
        secrets
            .iter()
            .filter(|secret| **secret == Some("Bearer new"))
            .count(),
        1
    );
    assert_eq!(secrets.last(), Some(&Some("Bearer new")));
    all.is_gone().await;
    host.drained().await;
}

/// A host stands still until another one has handled its message: a record that it would write then is refused.
#[tokio::test]
async fn a_late_attempt_remembers_nothing() {
    let mut scene = Scene::new().await;
    let durable = hostler_tests::guests::guest("durable")
        .display()
        .to_string();
    let options = scene
        .host()
        .cap(9)
        .flag("handler", &durable)
        .flag("grant-journal", "{}")
        .flags("min-idle=2s timeout=20s");
    let first = options.ready().await;
    let id = scene.publish("sleep:3000+remember:a=late,ack").await;
    first.starts(1).await;
    first.pause().await;
    let second = options.ready().await;
    scene.emptied().await;
    first.resume();
    first.drained().await;
    let left = scene.raw.ask("KEYS *:journal*").await;
    let left: Vec<String> = redis::from_redis_value(left).unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(second.drained().await.witness().attempts(&id), [2]);
}

#[tokio::test]
async fn a_trial_of_a_dead_letter_makes_no_recorded_call() {
    let mut all = Journaled::new("").await;
    let one = all.send("POST", "/ok", "one");
    all.scene.publish(&format!("{one}+trap,{one}+drop")).await;
    let host = all.host().cap(2).ready().await;
    eventually("it is dead", async || {
        DeadLetter::all(&all.scene.raw, "orders:dead").await.len() == 1
    })
    .await;
    host.drained().await;
    let redis = all.scene.server.url();
    let handler = hostler_tests::guests::guest("outbound")
        .display()
        .to_string();
    let config = all.config.display().to_string();
    let words = [
        "dlq",
        "replay",
        "--redis",
        &redis,
        "orders:dead",
        "--dry-run",
        "--json",
    ];
    for _ in 0..2 {
        let mut trial = hostler(
            words
                .iter()
                .chain(&["--handler", &handler, "--config", &config]),
        );
        let ended = end(trial.env("PLANTED", "pl4nted-s3cr3t")).ok();
        assert!(
            ended.stdout.contains("\"verdict\":\"fault\""),
            "{}",
            ended.stdout
        );
        assert_eq!(all.counts(), once(&["one"]));
    }
}
