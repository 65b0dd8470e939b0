//! Connections with a subscription.

use std::sync::Arc;

use redis::{PushInfo, cmd};
use tokio::time::timeout;

use crate::connection::{Connector, Session, broken, no_timeouts};
use crate::error::Error;
use crate::reply;
use crate::topology::Node;
use hostler_core::wire::keys;

impl Connector {
    /// Subscribe on a new connection; pushes go to `inbox`, which must not block.
    ///
    /// # Errors
    /// As [`Link::call`]: nothing is subscribed then.
    pub async fn subscribe(
        &self,
        command: &'static str,
        to: &str,
        inbox: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Subscribed, Error> {
        // A sharded channel is on the node that has its slot.
        let slot = (command == "SSUBSCRIBE").then(|| keys::slot(to));
        let node = self.node_of(slot).await?;
        let subscribed = self.subscribe_at(&node, command, to, inbox).await;
        if matches!(&subscribed, Err(error) if error.says_who_serves_changed()) {
            node.suspect();
        }
        subscribed
    }

    /// The same at this server.
    pub(super) async fn subscribe_at(
        &self,
        node: &Arc<Node>,
        command: &'static str,
        to: &str,
        inbox: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Subscribed, Error> {
        let inbox = move |push| {
            inbox(push);
            Ok::<(), ()>(())
        };
        let name = format!("{}:subscription", self.name);
        let subscribing = async {
            let config = no_timeouts().set_push_sender(inbox);
            let opening = self.open_and_log_in(node, &name, 0, config, true);
            let (mut session, _) = opening.await?;
            let mut subscribe = cmd(command);
            let sent = session
                .connection
                .send_packed_command(subscribe.arg(to))
                .await;
            reply::accepted(command, sent.map_err(|e| broken(node, &e))?)?;
            Ok(session)
        };
        match timeout(self.deadline, subscribing).await {
            Ok(session) => Ok(Subscribed {
                connector: self.clone(),
                node: Arc::clone(node),
                session: session?,
            }),
            Err(_) => Err(self.late(node, command, self.deadline)),
        }
    }
}

/// A connection with a subscription. Both end when this is dropped.
pub struct Subscribed {
    connector: Connector,
    node: Arc<Node>,
    session: Session,
}

impl Subscribed {
    /// Whether the server still answers on it.
    ///
    /// # Errors
    /// `Connection` or `Deadline`: it is gone.
    pub async fn answers(&mut self) -> Result<(), Error> {
        const COMMAND: &str = "PING";
        let ping = cmd(COMMAND);
        let Session {
            connection,
            progress,
            ..
        } = &mut self.session;
        let asked = connection.send_packed_command(&ping);
        let deadline = self.connector.deadline;
        // Behind many messages, the answer waits as long as bytes move.
        match progress.wait_for(deadline, asked).await {
            // Any answer will do: the user may lack the right to `PING`.
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(broken(&self.node, &error)),
            None => Err(self.connector.late(&self.node, COMMAND, deadline)),
        }
    }
}
