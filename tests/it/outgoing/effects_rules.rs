//! The rules that make effects exactly once, each taken out: then a promise breaks. A proxy changes what
//! real hosts send: the text of a script, or a name.

use hostler::outgoing;
use hostler::queue::{list, stream};
use hostler::redis::script::Script;
use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::scene::{self, Kind, on_both};

type Scene = scene::Scene<()>;

on_both! {
    what_is_published_before_the_ack_is_published_twice
}

/// A change of what hosts send.
#[derive(Clone, Copy)]
enum Without<'a> {
    /// Every rule holds.
    Nothing,
    /// These scripts have the second text in place of the first.
    Text(&'a [&'static Script], &'a str, &'a str),
    /// Names: the second of a pair stands for the first, which has as many bytes.
    Names(&'a [(&'a str, &'a str)]),
}

/// A proxy that makes this change.
fn proxy(scene: &Scene, without: Without<'_>) -> Proxy {
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    match without {
        Without::Nothing => {}
        Without::Text(scripts, from, to) => {
            for script in scripts {
                change(&proxy, script, &[(from, to)]);
            }
        }
        Without::Names(names) => {
            for (from, to) in names {
                assert_eq!(from.len(), to.len());
                proxy.rewrite(*from, *to);
            }
        }
    }
    proxy
}

/// This script has the second text of each pair in place of the first.
fn change(proxy: &Proxy, script: &'static Script, pairs: &[(&str, &str)]) {
    let source = script.source();
    let changed = pairs.iter().fold(source.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{}: {from}", script.name());
        text.replace(from, to)
    });
    let bulk = |text: &str| format!("${}\r\n{text}", text.len());
    let digest = |text: &str| redis::Script::new(text).get_hash().to_owned();
    proxy.rewrite(bulk(source), bulk(&changed));
    proxy.rewrite(digest(source), digest(&changed));
}

/// A renewal never says that a delivery is lost. So a host that lost one finds out at its late ack, however busy the
/// machine is.
fn hide_losses(proxy: &Proxy) {
    let told = "return told(words)";
    let silent = "return 'done'";
    change(proxy, &stream::scripts::RENEW, &[(told, silent)]);
    let stolen = ("out[#out + 1] = 'stolen'", "out[#out + 1] = 'done'");
    // Nor is one brought back that such an ack took from its next owner.
    change(
        proxy,
        &stream::scripts::READOPT,
        &[("    words[i] = false\n", "")],
    );
    let evicted = ("return { unknown and 1 or 0, out }", "return { 0, out }");
    change(proxy, &list::scripts::LIST_HOLD, &[stolen, evicted]);
}

fn host(proxy: &Proxy, kind: Kind) -> HostOptions {
    let options = HostOptions::at(&proxy.url())
        .flag("handler", &guest("publishing").display().to_string())
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#);
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true recovery-zset=orders:claims"),
    }
}

async fn publish(scene: &Scene, kind: Kind, body: &str) {
    match kind {
        Kind::Stream => drop(scene.raw.add("orders", body).await),
        Kind::List => scene.push("orders", body.as_bytes()).await,
    }
}

/// How many invoices there are after one host stood still while it handled a message, and another one
/// took the message over: `taken_over` says what happens then.
async fn invoices_of_two_hosts(
    without: Without<'_>,
    kind: Kind,
    body: &str,
    taken_over: impl AsyncFnOnce(&Scene, hostler_tests::host::Host, hostler_tests::host::Host),
) -> usize {
    let scene = Scene::new().await;
    let proxy = proxy(&scene, without);
    hide_losses(&proxy);
    let options = host(&proxy, kind)
        .flags("min-idle=500ms timeout=1m")
        .admin();
    let first = options.ready().await;
    publish(&scene, kind, body).await;
    first.starts(1).await;
    first.pause().await;
    let second = options.ready().await;
    second.starts(1).await;
    taken_over(&scene, first, second).await;
    invoices(&scene).await.len()
}

async fn invoices(scene: &Scene) -> Vec<DeadLetter> {
    DeadLetter::all(&scene.raw, "invoices").await
}

async fn what_is_published_before_the_ack_is_published_twice(kind: Kind) {
    let early = match kind {
        Kind::Stream => Without::Text(
            &[&stream::scripts::ACKNOWLEDGE],
            "  local word = words[i]\n",
            "  write_all(item.all, 0)\n  item.all = { expected = {} }\n  local word = words[i]\n",
        ),
        Kind::List => Without::Text(
            &[&list::scripts::LIST_ACKNOWLEDGE],
            "  local word\n  if not entry then\n",
            "  write_all(effects[i], 0)\n  effects[i] = { expected = {} }\n  local word\n  if not entry then\n",
        ),
    };
    let published = async |without| {
        // It still sleeps when it stands still, however busy the machine is.
        let body = "sleep:3000+publish:invoices:x";
        let invoices = invoices_of_two_hosts(without, kind, body, async |scene, first, second| {
            eventually("the second one has published", async || {
                invoices(scene).await.len() == 1
            })
            .await;
            first.resume();
            eventually("the first one has lost it", async || {
                first.metric("hostler_effects_void_total") == 1
            })
            .await;
            first.drained().await;
            second.drained().await;
        });
        invoices.await
    };
    assert_eq!(published(Without::Nothing).await, 1);
    assert_eq!(published(early).await, 2);
}

/// The late ack has no effects, because the first attempt publishes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_unchecked_late_ack_voids_the_effects_of_the_next_owner() {
    let unchecked = Without::Text(
        &[
            &stream::scripts::ACKNOWLEDGE,
            &stream::scripts::ACKNOWLEDGE_ONLY,
        ],
        "  local word = words[i]\n",
        "  local word = #item.all > 0 and words[i] or nil\n",
    );
    let published = async |without| {
        // The second attempt runs for long enough to be paused on a busy machine.
        let body = "sleep:2500,sleep:5000+publish:invoices:x";
        let then = async |_: &Scene,
                          first: hostler_tests::host::Host,
                          second: hostler_tests::host::Host| {
            second.pause().await;
            first.resume();
            first.drained().await;
            second.resume();
            second.drained().await;
        };
        invoices_of_two_hosts(without, Kind::Stream, body, then).await
    };
    assert_eq!(published(Without::Nothing).await, 1);
    assert_eq!(published(unchecked).await, 0);
}

/// Two groups handle one message, and each publishes an invoice: both are handled.
#[tokio::test(flavor = "multi_thread")]
async fn follow_ups_of_two_groups_are_duplicates_if_their_ids_do_not_name_the_group() {
    let names = Without::Names(&[("/workers/", "/-------/"), ("/readers/", "/-------/")]);
    for (without, handled) in [(Without::Nothing, 2), (names, 1)] {
        let scene = Scene::new().await;
        let proxy = proxy(&scene, without);
        publish(&scene, Kind::Stream, "publish:invoices:ack").await;
        for group in ["workers", "readers"] {
            host(&proxy, Kind::Stream)
                .flag("group", group)
                .finish()
                .await;
        }
        assert_eq!(invoices(&scene).await.len(), 2);
        let consumer = HostOptions::at(&proxy.url()).flags("stream=invoices dedup-window=1h");
        let ended = consumer.flag("concurrency", "1").finish().await;
        assert_eq!(ended.json()["attempts"], handled);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_misses_messages_if_marks_do_not_name_the_group() {
    let names = Without::Names(&[
        (":done:workers:", ":done:-------:"),
        (":done:readers:", ":done:-------:"),
    ]);
    for (without, attempts) in [(Without::Nothing, 1), (names, 0)] {
        let scene = Scene::new().await;
        let proxy = proxy(&scene, without);
        publish(&scene, Kind::Stream, "ack").await;
        let host = |group| {
            host(&proxy, Kind::Stream)
                .flag("dedup-window", "1h")
                .flag("group", group)
        };
        assert_eq!(host("workers").finish().await.json()["attempts"], 1);
        assert_eq!(host("readers").finish().await.json()["attempts"], attempts);
    }
}

/// The answer to a run is lost, so it is relayed again: the mark beside the destination says that it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_a_mark_takes_twice_what_is_relayed_twice() {
    let unmarked = Without::Text(
        &[&outgoing::scripts::RELAY],
        "if is_above(id, last) then",
        "if true then",
    );
    for (without, published) in [(Without::Nothing, 1), (unmarked, 2)] {
        let scene = Scene::new().await;
        let proxy = proxy(&scene, without);
        let options = host(&proxy, Kind::Stream).flag("publish-outbox", "always");
        let host = options.ready().await;
        proxy.cut_reply("{invoices}:from", 0);
        publish(&scene, Kind::Stream, "publish:invoices:x").await;
        eventually("it is relayed, and again", async || {
            let waiting = "XLEN {orders}:outbox:stream:invoices";
            proxy.replies_cut() == 1
                && !invoices(&scene).await.is_empty()
                && scene.raw.number(waiting).await == 0
        })
        .await;
        host.drained().await;
        assert_eq!(invoices(&scene).await.len(), published);
    }
}

/// An outbox is lost, and begins again below the mark: an entry that is removed must have been taken.
#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_begins_again_loses_entries_if_nothing_looks_for_that_of_the_mark() {
    let blind = Without::Text(&[&outgoing::scripts::OUTBOX_TRIM], "return -1", "");
    for (without, arrived) in [(Without::Nothing, 2), (blind, 1)] {
        let scene = Scene::new().await;
        let proxy = proxy(&scene, without);
        let options = host(&proxy, Kind::Stream).flag("publish-outbox", "always");
        let host = options.ready().await;
        publish(&scene, Kind::Stream, "publish:invoices:x").await;
        let is_relayed = async || {
            let waiting = "XLEN {orders}:outbox:stream:invoices";
            !invoices(&scene).await.is_empty() && scene.raw.number(waiting).await == 0
        };
        eventually("it is relayed", is_relayed).await;
        scene.delete("{orders}:outbox:stream:invoices").await;
        let add = "XADD {orders}:outbox:stream:invoices 1-1 write append _payload y";
        scene.raw.ask(add).await;
        eventually("the outbox is empty", is_relayed).await;
        host.drained().await;
        assert_eq!(invoices(&scene).await.len(), arrived);
    }
}
