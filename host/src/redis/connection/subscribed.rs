//! Connections with a subscription: opened with a deadline, asked with a deadline.

use redis::{Cmd, PushInfo};
use tokio::time::timeout;

use crate::redis::connection::{Connector, Session, no_timeouts};
use crate::redis::error::Error;
use crate::redis::reply;

impl Connector {
    /// Subscribe on a connection of its own; what comes goes to `inbox`, which must not block.
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
            let mut cmd = Cmd::new();
            cmd.arg(command).arg(to);
            let sent = session.connection.send_packed_command(&cmd).await;
            reply::accepted(command, sent.map_err(|e| self.broken(&e))?)?;
            Ok(session)
        };
        match timeout(self.deadline, subscribing).await {
            Ok(session) => Ok(Subscribed {
                connector: self.clone(),
                session: session?,
            }),
            Err(_) => Err(self.late(command)),
        }
    }
}

/// A connection with a subscription. It ends with this.
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
        let mut cmd = Cmd::new();
        cmd.arg(COMMAND);
        let asked = self.session.connection.send_packed_command(&cmd);
        match timeout(self.connector.deadline, asked).await {
            // What it says does not matter: a user may lack the right to ask.
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.connector.broken(&error)),
            Err(_) => Err(self.connector.late(COMMAND)),
        }
    }
}
