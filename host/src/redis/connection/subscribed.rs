//! Connections with a subscription.

use redis::{PushInfo, cmd};
use tokio::time::timeout;

use crate::redis::connection::{Connector, Session, no_timeouts};
use crate::redis::error::Error;
use crate::redis::reply;

impl Connector {
    /// Subscribe on a new connection; pushes go to `inbox`, which must not block.
    ///
    /// # Errors
    /// As [`Link::call`]: nothing is subscribed then.
    pub(crate) async fn subscribe(
        &self,
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
            let (mut session, _) = self.open_and_log_in(&name, 0, config, true).await?;
            let mut subscribe = cmd(command);
            let sent = session
                .connection
                .send_packed_command(subscribe.arg(to))
                .await;
            reply::accepted(command, sent.map_err(|e| self.broken(&e))?)?;
            Ok(session)
        };
        match timeout(self.deadline, subscribing).await {
            Ok(session) => Ok(Subscribed {
                connector: self.clone(),
                session: session?,
            }),
            Err(_) => Err(self.late(command, self.deadline)),
        }
    }
}

/// A connection with a subscription. Both end when this is dropped.
pub(crate) struct Subscribed {
    connector: Connector,
    session: Session,
}

impl Subscribed {
    /// Whether the server still answers on it.
    ///
    /// # Errors
    /// `Connection` or `Deadline`: it is gone.
    pub(crate) async fn answers(&mut self) -> Result<(), Error> {
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
            Some(Err(error)) => Err(self.connector.broken(&error)),
            None => Err(self.connector.late(COMMAND, deadline)),
        }
    }
}
