//! The producer of a demo: orders at a steady rate.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::publish::{Destination, Outgoing, Publisher};
use crate::redis::connection::Connector;
use crate::workbench::Error;

/// 20 orders a second.
const EVERY: Duration = Duration::from_millis(50);

/// Publish orders to this stream, until it fails.
pub(super) async fn produce(connector: &Connector, stream: &str) -> Result<Infallible, Error> {
    let publisher = Publisher::new(connector, Destination::stream(stream));
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        ticks.tick().await;
        number += 1;
        let order = Outgoing::new(order(number));
        publisher.publish_all(&[order]).await?;
    }
}

/// One order in five is in yen, which the handler does not know. One in ten is of nothing.
fn order(number: u64) -> String {
    let currency = match number % 5 {
        0 => "JPY",
        1 => "USD",
        2 => "GBP",
        _ => "EUR",
    };
    let cents = match number % 10 {
        3 => 0,
        _ => 500 + number * 37 % 900,
    };
    format!("{{\"id\":\"A-{number}\",\"currency\":\"{currency}\",\"cents\":{cents}}}")
}
