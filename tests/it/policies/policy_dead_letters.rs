//! The dead-letter key is taken away under load, by a policy or in the configuration file. That is no word to discard
//! anything: dead letters wait. With a word, messages on their way end under the new rules: nothing stays pending.

use hostler_tests::command::run;
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;
use serde_json::json;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::policies::policy_scene::File;

on_both! {
    dead_letters_wait_for_a_word_when_a_policy_takes_their_key_away
    dead_letters_wait_for_a_word_when_the_file_takes_their_key_away
}

/// This number of messages waits, or settles, while the rules change: more than one request settles.
const BACKLOG: u64 = 2000;

async fn dead_letters_wait_for_a_word_when_a_policy_takes_their_key_away(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let queue = ["--redis", &url, "--queue", scene.key()];
    let key = format!("dead_letter.key={}", scene.dead_key());
    run([&["policy", "set"], &queue[..], &[&key]].concat()).ok();
    let host = scene.binary().without("dead-letter").admin().ready().await;
    let take = || {
        let unset = [&["policy", "unset"], &queue[..], &["dead_letter.key"]].concat();
        let said = run(unset).ok();
        assert!(said.stderr.contains("keep their dead letters"), "{said:?}");
    };
    let discard = || {
        let routes = ["dead_letter.routes=dropped=discard"];
        run([&["policy", "set"], &queue[..], &routes].concat()).ok();
    };
    no_message_is_discarded_without_a_word(&scene, host, take, discard).await;
}

async fn dead_letters_wait_for_a_word_when_the_file_takes_their_key_away(kind: Kind) {
    let scene = Scene::new(kind).await;
    let file = File::of(&format!("[dead_letter]\nkey = \"{}\"\n", scene.dead_key()));
    let options = scene.binary().without("dead-letter").admin();
    let options = options.flag("config", file.path.to_str().unwrap());
    let host = options.ready().await;
    let discard = "[dead_letter]\nroutes = \"dropped=discard\"\n";
    let (take, discard) = (|| file.replace(""), || file.replace(discard));
    no_message_is_discarded_without_a_word(&scene, host, take, discard).await;
}

async fn no_message_is_discarded_without_a_word(
    scene: &Scene,
    host: Host,
    take_the_key_away: impl FnOnce(),
    discard: impl FnOnce(),
) {
    let mut load = Load { scene, sent: 0 };
    eventually("dead letters are written under load", async || {
        load.keep_up(&host).await;
        scene.length(scene.dead_key()).await > BACKLOG / 4
    })
    .await;
    take_the_key_away();
    eventually("dead letters wait", async || {
        // The host may have ended the whole backlog before the rules changed.
        load.keep_up(&host).await;
        let (status, text) = host.get("/ready");
        status == 503 && text.contains("dead-letters-refused") && text.contains("taken away")
    })
    .await;
    let sent = load.sent;
    // The host counts them when it has the answer of Redis.
    let mut copied = 0;
    eventually(
        "nothing is discarded, and all that is copied is counted",
        async || {
            copied = scene.length(scene.dead_key()).await;
            ended(&host) == copied
        },
    )
    .await;
    assert!(sent > copied, "the load ended before the rules changed");
    discard();
    eventually("each message has ended", async || ended(&host) == sent).await;
    let discarded = sent - copied;
    let summary = host.drained().await.json();
    assert_eq!(summary["dead_lettered"], json!({"dropped": copied}));
    assert_eq!(summary["discarded"], discarded);
}

/// How many messages are in the dead-letter queue, or discarded.
fn ended(host: &Host) -> u64 {
    let metrics = host.metrics();
    let ended = |disposition: &str| {
        let series = format!(
            "hostler_dispositions_total{{disposition=\"{disposition}\",reason=\"dropped\"}} "
        );
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
        value.unwrap().parse::<u64>().unwrap()
    };
    ended("dead-letter") + ended("discard")
}

/// Messages whose handler drops them.
struct Load<'a> {
    scene: &'a Scene,
    sent: u64,
}

impl Load<'_> {
    /// Send more, unless enough of them wait.
    async fn keep_up(&mut self, host: &Host) {
        let missing = BACKLOG.saturating_sub(self.sent - ended(host));
        let send = match self.scene.kind {
            Kind::Stream => "redis.call('XADD', KEYS[1], '*', '_payload', 'drop')",
            Kind::List => "redis.call('LPUSH', KEYS[1], 'drop')",
        };
        let script = format!("for _ = 1, ARGV[1] do {send} end");
        let (key, count) = (self.scene.key(), missing.to_string());
        let words = ["EVAL", &script, "1", key, &count].map(str::as_bytes);
        self.scene.raw.ask_words(&words).await;
        self.sent += missing;
    }
}
