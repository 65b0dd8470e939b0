//! Replies that are lost: Redis has done the request, and the host asks again. On reliable lists.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::list::scripts;
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::{Claim, Queue, Reply, SettleAction};
use hostler::redis::Class;
use hostler::redis::script::Script;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::queue::list_scene::{DEAD, DELAYED, KEY, Scene, both, framed};
use crate::scene::{
    bodies, connector, dead_letter, discard, fetch, orphaned, park, record, recorded, requeue,
    settle, settled, settlement, take_more,
};

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

/// The digest that calls of this script contain.
fn digest(script: &'static Script) -> Vec<u8> {
    let call = script.on(&[]);
    let Some(redis::Arg::Simple(digest)) = call.args_iter().nth(1) else {
        panic!("a script is called by its digest")
    };
    digest.to_vec()
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_adopted_later_and_charged_once() {
    for options in both() {
        let options = ListOptions {
            min_idle: Duration::from_millis(200),
            ..options
        };
        let (scene, proxy, host) = cut_off(options).await;
        let known = claim(&scene, &host, "known").await;
        for (n, after) in CUTS.into_iter().enumerate() {
            scene.publish(["unknown, and not so short a value"]).await;
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
async fn a_repeated_request_is_done_once() {
    // The shortest reply has 14 bytes.
    for after in CUTS.into_iter().filter(|after| *after < 14) {
        for options in both() {
            let (scene, proxy, host) = cut_off(options).await;
            let body = "a body that is not so short";
            let later = Duration::from_secs(99);
            let steps = [
                (requeue(1), Reply::Gone, KEY, "LLEN"),
                (park(1, later), Reply::Done, DELAYED, "ZCARD"),
                (dead_letter(), Reply::Gone, DEAD, "LLEN"),
            ];
            for (step, again, key, length) in steps {
                scene.delete(KEY).await;
                let delivery = claim(&scene, &host, body).await;
                proxy.cut_reply("EVALSHA", after);
                let cut = settlement(&delivery, 1, step.clone());
                host.settle(&[cut]).await.unwrap_err();
                assert_eq!(settle(&host, &delivery, 1, step).await, again);
                assert_eq!(scene.raw.number(&format!("{length} {key}")).await, 1);
                assert!(scene.processing(&host).await.is_empty());
            }
            // The repeat of a hold is an ordinary park, and finds it carried out: it is counted once.
            scene.delete(DELAYED).await;
            let hold = SettleAction::Hold {
                keep: 1,
                after: Duration::ZERO,
                attempt: 1,
            };
            let delivery = claim(&scene, &host, body).await;
            proxy.cut_reply("EVALSHA", after);
            let cut = settlement(&delivery, 1, hold.clone());
            host.settle(&[cut]).await.unwrap_err();
            assert_eq!(
                settle(&host, &delivery, 1, hold.again(1)).await,
                Reply::Gone
            );
            assert_eq!(scene.raw.number("LLEN jobs").await, 1);
            let held = fetch(&host, 1).await.remove(0);
            assert_eq!((held.held.count, held.native, held.header), (1, 2, 0));
            settled(&host, &held, 2, discard()).await;
            let delivery = claim(&scene, &host, body).await;
            proxy.cut_reply("EVALSHA", after);
            host.record(&[record(&delivery, 1, 2)]).await.unwrap_err();
            assert_eq!(recorded(&host, &delivery, 1, 2).await, Reply::Done);
            assert_eq!(scene.mark(&host, &delivery).await.as_deref(), Some("2"));
            settled(&host, &delivery, 2, discard()).await;
        }
    }
}

#[tokio::test]
async fn orphans_whose_reply_was_lost_are_found_again_and_charged_once() {
    for options in both() {
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
        proxy.cut_reply(digest(&scripts::LIST_TAKE), 0);
        let nothing = heir.take_orphans(9, &|_| false).await;
        // The first call may find the script unknown, and then it is the second that is cut.
        assert!(nothing.is_err() || proxy.replies_cut() > 0);
        let mut found: Vec<Arc<Claim>> = Vec::new();
        eventually("both are found", async || {
            take_more(&heir, &mut found).await == 2
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

/// A host is cut off, and asks again when another host has taken over: a delivery that is gone was
/// not settled by this host.
#[tokio::test]
async fn a_repeated_settlement_tells_a_stolen_delivery_from_a_settled_one() {
    for options in both() {
        for step in [dead_letter(), discard(), requeue(1)] {
            let (scene, _proxy, host) = cut_off(options.clone()).await;
            let heir = scene.host_with(options.clone()).await;
            let robbed = claim(&scene, &host, "robbed").await;
            let done = claim(&scene, &host, "settled").await;
            settled(&host, &done, 1, step.clone()).await;
            scene.raw.ask(&format!("DEL {KEY} {DEAD}")).await;
            scene.age(&host).await;
            scene.age_claims().await;
            let taken = orphaned(&heir, 9).await;
            assert_eq!(taken.len(), 1);
            // Asked twice, as the answer may be lost once more, and after the heir has settled it.
            for _ in 0..2 {
                let again = settle(&host, &robbed, 1, step.clone()).await;
                assert_eq!(again, Reply::Stolen, "{step:?}");
            }
            heir.acknowledge(&taken).await.unwrap();
            assert_eq!(settle(&host, &robbed, 1, step.clone()).await, Reply::Stolen);
            assert_eq!(settle(&host, &done, 1, step.clone()).await, Reply::Gone);
            assert_eq!(scene.raw.number(&format!("EXISTS {KEY} {DEAD}")).await, 0);
            // A renewal with this answer ends the record of it; nothing stays when the hosts leave.
            let held = [Arc::clone(&robbed)];
            assert_eq!(host.renew(&held).await.unwrap(), [Reply::Stolen]);
            assert_eq!(scene.mark(&host, &robbed).await, None);
            for host in [host, heir] {
                host.leave().await.unwrap();
            }
            assert_eq!(scene.keys().await, 0);
        }
    }
}

/// A value that is claimed again has another token: a request for the first one finds nothing.
#[tokio::test]
async fn a_late_request_that_was_repeated_does_nothing() {
    for options in both() {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let connector = connector(&proxy.url()).with_deadline(Duration::from_secs(2));
        let host = ListQueue::open(connector, options).await.unwrap();
        let delivery = claim(&scene, &host, "asked twice").await;
        let settlement = [settlement(&delivery, 1, requeue(1))];
        proxy.stall();
        assert!(host.settle(&settlement).await.is_err());
        eventually("it is asked again, and done", async || {
            host.settle(&settlement)
                .await
                .is_ok_and(|replies| replies == [Reply::Done])
        })
        .await;
        let mut back = Vec::new();
        eventually("it is here again", async || {
            back = host.fetch(9, Duration::ZERO).await.unwrap_or_default();
            !back.is_empty()
        })
        .await;
        let before = scene.calls("evalsha").await;
        let held = scene.processing(&host).await;
        proxy.release();
        eventually("it has come", async || {
            scene.calls("evalsha").await != before
        })
        .await;
        assert_eq!(scene.processing(&host).await, held);
        assert!(scene.list(KEY).await.is_empty());
        let back: Vec<_> = back.into_iter().map(Arc::new).collect();
        assert_eq!(back[0].message.id, delivery.message.id);
        eventually("it is acknowledged", async || {
            host.acknowledge(&back).await.is_ok()
        })
        .await;
        assert!(scene.processing(&host).await.is_empty());
    }
}

#[tokio::test]
async fn a_lost_reply_to_the_dead_letters_of_a_length_limit_loses_and_repeats_nothing() {
    for after in [0, 1, 11, 40, 90] {
        for options in both() {
            let options = ListOptions {
                max_length: Some(2),
                ..options
            };
            let (scene, proxy, host) = cut_off(options).await;
            let bodies: Vec<String> = (0..10).map(|n| format!("body {n}")).collect();
            scene.publish(&bodies).await;
            proxy.cut_reply(digest(&scripts::LIST_DEAD_LETTER), after);
            host.maintain().await.unwrap_err();
            assert_eq!(proxy.replies_cut(), 1);
            // Not counted as long as it is not known, then once.
            let done = host.maintain().await.unwrap();
            assert_eq!(
                (done.overflowed, done.refusals),
                (8, 0),
                "cut after {after}"
            );
            assert_eq!(host.maintain().await.unwrap().overflowed, 0);
            let mut dead: Vec<_> = scene.list(DEAD).await;
            dead.reverse();
            let dead: Vec<_> = dead.iter().map(|value| framed(value).1).collect();
            assert_eq!(dead, bodies[..8]);
            let mut left = scene.list(KEY).await;
            left.reverse();
            assert_eq!(
                left,
                bodies[8..]
                    .iter()
                    .map(|body| body.as_bytes())
                    .collect::<Vec<_>>()
            );
            assert!(scene.processing(&host).await.is_empty());
        }
    }
}

/// The claimed values are found like any other unknown delivery.
#[tokio::test]
async fn a_lost_reply_to_the_claim_of_a_length_limit_loses_nothing() {
    for options in both() {
        let options = ListOptions {
            max_length: Some(2),
            min_idle: Duration::from_millis(200),
            ..options
        };
        let (scene, proxy, host) = cut_off(options).await;
        scene.publish(["0", "1", "2", "3", "4"]).await;
        proxy.cut_reply(digest(&scripts::LIST_CLAIM), 4);
        host.maintain().await.unwrap_err();
        assert_eq!(scene.processing(&host).await.len(), 3);
        assert_eq!(host.maintain().await.unwrap().overflowed, 0);
        let mut found: Vec<Arc<Claim>> = Vec::new();
        eventually("they are adopted", async || {
            take_more(&host, &mut found).await == 3
        })
        .await;
        let mut bodies = bodies(&found);
        bodies.sort();
        assert_eq!(bodies, ["0", "1", "2"]);
        assert!(scene.list(DEAD).await.is_empty());
        assert_eq!(scene.list(KEY).await.len(), 2);
    }
}
