//! The example guests, built like users build them.

use std::time::Duration;

use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::Settings;
use hostler_tests::rig::{Rig, fault, message};

#[tokio::test]
async fn the_rust_orders_handler_gives_the_documented_outcomes() {
    let mut rig = Rig::guest("orders-handler", &Settings::default());

    let good = rig.run(r#"{"id":"o-1","amount":42.5}"#).await;
    assert_eq!(good.outcome, Outcome::Ack);
    assert_eq!(rig.lines(), ["attempt 1: charged"]);

    let flaky = message(r#"{"id":"o-2","amount":1,"simulate":"payment-timeout","failures":2}"#);
    let again = |ms| Outcome::NackRequeue(Some(Duration::from_millis(ms)));
    assert_eq!(rig.call(&flaky, 1).await.outcome, again(100));
    assert_eq!(rig.call(&flaky, 2).await.outcome, again(200));
    assert_eq!(rig.call(&flaky, 3).await.outcome, Outcome::Ack);

    assert_eq!(rig.reason("hello").await, "not an order");
    let crash = rig
        .run(r#"{"id":"o-3","amount":1,"simulate":"crash"}"#)
        .await;
    assert_eq!(fault(crash).kind, FaultKind::Trap);
    assert!(rig.lines().contains(&"order o-3 hit a bug".to_owned()));
}
