//! Replies that are cut at any byte: Redis has run the script, the host does not know it, and asks again.

use hostler::redis::Class;
use hostler::schedule::{Changed, OfFile, Store};
use hostler_tests::proxy::Proxy;

use crate::scene::{Kind, connector, on_both};
use crate::schedule::schedule_scene::{DAILY, FILE, Host, Scene, YEARLY, defined};

on_both! {
    a_tick_whose_reply_is_lost_is_published_once
}

/// Where replies are cut: before the first byte, inside, and at each end that a short reply has.
const CUTS: [u64; 7] = [0, 1, 2, 4, 7, 12, 40];

struct Cut {
    scene: Scene,
    proxy: Proxy,
    store: Store,
}

impl Cut {
    async fn new(kind: Kind) -> Self {
        let scene = Scene::on(kind).await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let store = scene.store_at(&connector(&proxy.url()));
        // The connection is open, and the scripts are loaded.
        store.look().await.unwrap();
        Self {
            scene,
            proxy,
            store,
        }
    }

    fn host(&self, file: Option<OfFile>) -> Host {
        self.scene.host_at(&connector(&self.proxy.url()), file)
    }

    /// Do something with a lost reply to the request that has this text, and then again.
    async fn twice<T>(
        &self,
        needle: &str,
        after: u64,
        mut what: impl AsyncFnMut() -> Result<T, hostler::redis::Error>,
    ) -> T {
        self.proxy.cut_reply(needle, after);
        let first = what().await;
        self.proxy.disarm();
        match first {
            // The reply was shorter than the cut.
            Ok(done) => return done,
            Err(error) => assert_eq!(error.class(), Class::Reconnect, "{error}"),
        }
        what().await.unwrap()
    }
}

async fn a_tick_whose_reply_is_lost_is_published_once(kind: Kind) {
    let cut = Cut::new(kind).await;
    let scene = &cut.scene;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let mut host = cut.host(None);
    host.settle().await.unwrap();
    for (published, after) in (1..).zip(CUTS) {
        scene.due("nightly").await;
        // The id stands in the call that publishes, and in no other.
        cut.twice("cron:nightly", after, async || host.settle().await)
            .await;
        assert_eq!(scene.ids().await.len(), published, "cut after {after}");
    }
    assert!(cut.proxy.replies_cut() >= 4);
}

#[tokio::test]
async fn definitions_whose_reply_is_lost_are_written_once() {
    let cut = Cut::new(Kind::Stream).await;
    let scene = &cut.scene;
    for after in CUTS {
        scene.define(&[defined("gone", DAILY)]).await;
        let file = OfFile {
            source: FILE.to_owned(),
            defined: vec![defined("nightly", YEARLY)],
        };
        let mut host = cut.host(Some(file));
        cut.twice("nightly", after, async || host.settle().await)
            .await;
        assert_eq!(scene.names().await, ["nightly"], "cut after {after}");
    }
    assert!(cut.proxy.replies_cut() >= 4);
}

#[tokio::test]
async fn changes_whose_reply_is_lost_happen_once() {
    let cut = Cut::new(Kind::Stream).await;
    let (scene, store) = (&cut.scene, &cut.store);
    for (runs, after) in (1..).zip(CUTS) {
        scene.define(&[defined("nightly", YEARLY)]).await;
        let next = scene.next("nightly").await;
        let done = cut
            .twice("pause", after, async || store.pause("nightly").await)
            .await;
        assert_eq!((done, scene.next("nightly").await), (Changed::Done, None));
        let done = cut
            .twice("resume", after, async || store.resume("nightly").await)
            .await;
        assert_eq!((done, scene.next("nightly").await), (Changed::Done, next));
        let token = format!("token-{after}");
        let asked = cut
            .twice(&token, after, async || store.run("nightly", &token).await)
            .await;
        assert!(asked.is_some());
        scene.host().settle().await.unwrap();
        assert_eq!(store.run("nightly", &token).await.unwrap(), asked);
        scene.host().settle().await.unwrap();
        assert_eq!(scene.ids().await.len(), runs, "cut after {after}");
    }
    // The second try finds that it is gone.
    cut.twice("remove", 0, async || store.remove("nightly").await)
        .await;
    assert!(scene.names().await.is_empty());
    assert!(cut.proxy.replies_cut() >= 10);
}

#[tokio::test]
async fn a_look_and_newer_zone_data_whose_replies_are_lost_change_nothing_more() {
    let cut = Cut::new(Kind::Stream).await;
    let scene = &cut.scene;
    for after in CUTS {
        scene.define(&[defined("nightly", DAILY)]).await;
        let next = scene.next("nightly").await.unwrap();
        scene.set_next("nightly", next + 3_600_000).await;
        let older = format!("HSET {} zones 2020a", scene.hash());
        scene.raw.ask(&older).await;
        let mut host = cut.host(None);
        // The old next tick stands in the call that sets the new one.
        let needle = (next + 3_600_000).to_string();
        cut.twice(&needle, after, async || host.settle().await)
            .await;
        assert_eq!(scene.next("nightly").await, Some(next), "cut after {after}");
        cut.twice("EVALSHA", after, async || host.settle().await)
            .await;
    }
    assert!(scene.ids().await.is_empty());
    assert!(cut.proxy.replies_cut() >= 6);
}
