//! The subscription, and the task that renews it for as long as its queue is served.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::PubSubOptions;
use super::inbox::Inbox;
use crate::delivery::backoff::Backoff;
use crate::redis::connection::{Connector, Subscribed};
use crate::redis::error::Error;

/// How often a silent server is probed.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// The pause before the next try to subscribe.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(50),
    factor: 2.0,
    max: Duration::from_secs(2),
    jitter: 0.5,
};
/// Once a subscription has lasted for this time, the next pause is the first one again.
const STEADY: Duration = Duration::from_secs(2);

/// A subscription. `gone` is notified of its end.
pub(super) struct Subscriber {
    subscribed: Subscribed,
    gone: Arc<Notify>,
}

impl Subscriber {
    /// Subscribe: messages go to the inbox.
    pub(super) async fn begin(
        connector: &Connector,
        options: &PubSubOptions,
        inbox: &Arc<Inbox>,
    ) -> Result<Self, Error> {
        let gone = Arc::new(Notify::new());
        let (to, ended) = (Arc::clone(inbox), Arc::clone(&gone));
        let receive = move |push| {
            if to.pushed(push) {
                ended.notify_one();
            }
        };
        let command = options.subscription.command();
        let subscribed = connector.subscribe(command, &options.name, receive);
        Ok(Self {
            subscribed: subscribed.await?,
            gone,
        })
    }

    /// Wait for its end.
    async fn ended(&mut self, connector: &Connector) -> Error {
        loop {
            tokio::select! {
                () = self.gone.notified() => return Error::Connection {
                    target: connector.target().address(),
                    detail: "the subscription has ended".to_owned(),
                },
                () = sleep(PROBE_EVERY) => {
                    if let Err(error) = self.subscribed.answers().await {
                        return error;
                    }
                }
            }
        }
    }
}

/// Subscribe again whenever the subscription ends, for ever.
pub(super) async fn keep(
    mut subscriber: Subscriber,
    connector: Connector,
    options: PubSubOptions,
    inbox: Arc<Inbox>,
) {
    let mut failures = 0_u32;
    loop {
        let since = Instant::now();
        let error = subscriber.ended(&connector).await;
        inbox.down(error);
        if since.elapsed() >= STEADY {
            failures = 0;
        }
        drop(subscriber);
        subscriber = loop {
            failures += 1;
            sleep(PAUSE.delay(failures, fastrand::f64())).await;
            match Subscriber::begin(&connector, &options, &inbox).await {
                Ok(subscriber) => break subscriber,
                Err(error) => inbox.down(error),
            }
        };
        inbox.up();
    }
}
