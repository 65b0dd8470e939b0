//! Replies that are cut on their way: Redis has done it, the host does not know.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::{Claim, Class, Queue, Reply, Step};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::list_scene::{DEAD, DELAYED, KEY, Scene, options, orphans, record, recovering, settle};
use crate::queue_scene::{connector, dead_letter, park};

/// Where replies are cut.
const CUTS: [u64; 5] = [0, 1, 4, 11, 40];

async fn cut_off(options: ListOptions) -> (Scene, Proxy, ListQueue) {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
    let host = ListQueue::open(connector(&proxy.url()), options)
        .await
        .unwrap();
    (scene, proxy, host)
}

async fn claim(scene: &Scene, host: &ListQueue, value: &str) -> Arc<Claim> {
    let claims = scene.claim(host, &[value]).await;
    host.renew(&claims).await.unwrap();
    Arc::clone(&claims[0])
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_adopted_later_and_charged_once() {
    for options in [options(), recovering()] {
        let options = ListOptions {
            min_idle: Duration::from_millis(200),
            ..options
        };
        let (scene, proxy, host) = cut_off(options).await;
        let known = claim(&scene, &host, "known").await;
        for (n, after) in CUTS.into_iter().enumerate() {
            scene.push(&[b"unknown, and not so short a value"]).await;
            proxy.cut_reply("EVALSHA", after);
            let error = host.fetch(5, Duration::ZERO).await.unwrap_err();
            assert_eq!(error.class(), Class::Reconnect);
            assert_eq!(scene.processing(&host).await.len(), n + 2);
        }
        let mut found = Vec::new();
        let known_id = known.id;
        eventually("all are adopted", async || {
            let renewed = host.renew(&[Arc::clone(&known)]).await.unwrap();
            assert_eq!(renewed, [Reply::Done]);
            let ids: Vec<_> = found.iter().map(|c: &Arc<Claim>| c.id).collect();
            let taken = host
                .take_orphans(9, &|id| *id == known_id || ids.contains(id))
                .await
                .unwrap();
            found.extend(taken.claims.into_iter().map(Arc::new));
            found.len() == CUTS.len()
        })
        .await;
        assert!(found.iter().all(|c| c.message.headers.retry_count() == 1));
        assert_eq!(scene.processing(&host).await.len(), CUTS.len() + 1);
        host.acknowledge(&found).await.unwrap();
        host.acknowledge(&[known]).await.unwrap();
        assert!(scene.processing(&host).await.is_empty());
    }
}

#[tokio::test]
async fn what_is_asked_again_is_done_once() {
    // The shortest reply has 14 bytes.
    for after in CUTS.into_iter().filter(|after| *after < 14) {
        for options in [options(), recovering()] {
            let (scene, proxy, host) = cut_off(options).await;
            let body = "a body that is not so short";
            let steps = [
                (park(1, Duration::ZERO), Reply::Gone, KEY, "LLEN"),
                (
                    park(1, Duration::from_secs(99)),
                    Reply::Done,
                    DELAYED,
                    "ZCARD",
                ),
                (dead_letter(), Reply::Gone, DEAD, "LLEN"),
            ];
            for (step, again, key, length) in steps {
                scene.raw.ask(&format!("DEL {KEY}")).await;
                let delivery = claim(&scene, &host, body).await;
                proxy.cut_reply("EVALSHA", after);
                let settlement = hostler::queue::Settlement {
                    claim: Arc::clone(&delivery),
                    count: 1,
                    step: step.clone(),
                };
                host.settle(&[settlement]).await.unwrap_err();
                assert_eq!(settle(&host, &delivery, 1, step).await, again);
                assert_eq!(scene.raw.number(&format!("{length} {key}")).await, 1);
                assert!(scene.processing(&host).await.is_empty());
            }
            let delivery = claim(&scene, &host, body).await;
            proxy.cut_reply("EVALSHA", after);
            let one = hostler::queue::Record {
                claim: Arc::clone(&delivery),
                expect: 1,
                write: 2,
            };
            host.record(&[one]).await.unwrap_err();
            assert_eq!(record(&host, &delivery, 1, 2).await, Reply::Done);
            assert_eq!(scene.mark(&host, &delivery).await.as_deref(), Some("2"));
            assert_eq!(
                settle(&host, &delivery, 2, Step::Discard).await,
                Reply::Done
            );
        }
    }
}

#[tokio::test]
async fn orphans_whose_reply_was_lost_are_found_again_and_charged_once() {
    for options in [options(), recovering()] {
        let options = ListOptions {
            min_idle: Duration::from_millis(200),
            ..options
        };
        let (scene, proxy, heir) = cut_off(options.clone()).await;
        let dead = scene.host_with(options.clone()).await;
        scene.claim(&dead, &["a", "b"]).await;
        scene.age(&dead).await;
        scene.age_claims().await;
        // The script that takes over, not those that look.
        let digest = hostler::queue::script::Script::ListTake.on(&[]);
        let digest = digest.args_iter().nth(1);
        let Some(redis::Arg::Simple(digest)) = digest else {
            panic!("a script is called by its digest")
        };
        proxy.cut_reply(digest.to_vec(), 0);
        let nothing = heir.take_orphans(9, &|_| false).await;
        // The first call may find the script unknown, and then it is the second that is cut.
        assert!(nothing.is_err() || proxy.replies_cut() > 0);
        let mut found: Vec<Arc<Claim>> = Vec::new();
        eventually("both are found", async || {
            found.extend(orphans(&heir, 9).await);
            found.len() == 2
        })
        .await;
        assert_eq!(scene.processing(&heir).await.len(), 2);
        // Handed out there, and perhaps started; never started here.
        assert!(
            found.iter().all(|c| c.message.headers.retry_count() == 1),
            "{found:?}"
        );
    }
}
