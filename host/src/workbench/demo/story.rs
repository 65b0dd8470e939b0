//! The steps of a demo: each waits for what it shows, and runs the commands that a user would type.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::folder::{CORRECTED_FILE, corrected};
use super::orders::produce;
use super::terminal::Terminal;
use super::{DEAD, Pace, QUEUE};
use crate::dead_letter::{DeadLetters, Filter, Group, Groups};
use crate::redis::connection::Connector;
use crate::registry::named;
use crate::registry::trace::{Stage, trace};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::rollout::verify;
use crate::workbench::Error;

/// How long a step waits for what it shows.
const STEP_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The pause for a person who reads.
const READING: Duration = Duration::from_secs(2);
/// So many orders die before the first look at them.
const DEAD_MIN: u64 = 10;
/// The cause of those that the handler's mistake kills, in part.
const MISTAKE: &str = "unknown currency";
/// How many of the newest messages are searched for one that was replayed.
const NEWEST: usize = 10_000;

/// What the steps work with.
pub(super) struct Story<'a> {
    pub(super) terminal: Terminal<'a>,
    pub(super) connector: &'a Connector,
    /// For the actions of the dashboard.
    pub(super) token: &'a str,
    pub(super) pace: Pace,
}

impl Story<'_> {
    /// Go through the steps, while orders come in. Then go on, unless they are shown once.
    pub(super) async fn tell(
        &self,
        begins: oneshot::Receiver<Option<SocketAddr>>,
    ) -> Result<(), Error> {
        let Ok(dashboard) = begins.await else {
            // The host has ended before it began, and says why.
            return pending().await;
        };
        let told = async {
            self.begin(dashboard);
            self.show_causes().await?;
            self.correct().await?;
            self.replay().await?;
            self.end();
            match self.pace.once {
                true => Ok::<_, Error>(()),
                false => pending().await,
            }
        };
        tokio::select! {
            told = told => told,
            failed = produce(self.connector, QUEUE) => failed.map(|never| match never {}),
        }
    }

    fn say(&self, text: &str) {
        self.terminal.say(text);
    }

    fn begin(&self, dashboard: Option<SocketAddr>) {
        let dashboard =
            dashboard.map_or_else(String::new, |address| format!("http://{address}/ui"));
        self.say(&format!(
            "20 orders a second come in. A handler charges them: a program of 1 KB, in a fresh sandbox for each order.\n\n\
             dashboard  {dashboard}\ntoken      {}  (for its actions)\nfolder     {}\n\n\
             The commands below work in that folder, in another terminal.",
            self.token,
            self.terminal.folder.display()
        ));
    }

    async fn show_causes(&self) -> Result<(), Error> {
        self.say("\n1. The queue is a Redis stream. One host serves it.");
        self.until("some orders are dead letters", async || {
            let found = self.causes().await?;
            Ok((found.total >= DEAD_MIN && found.groups.len() > 1).then_some(()))
        })
        .await?;
        self.run(&format!("hostler queues {QUEUE}")).await?;
        self.say(
            "\n2. Some orders die, for two causes. Orders of nothing are dropped: that is meant. Orders in yen fail, and fail \
             again: the handler has a mistake.",
        );
        self.run(&format!("hostler dlq groups {DEAD}")).await
    }

    async fn correct(&self) -> Result<(), Error> {
        let cause = self.mistake().await?;
        self.say(&format!(
            "\n3. {CORRECTED_FILE} knows the yen. It is tried on dead letters of that cause: this changes nothing."
        ));
        let signature = &cause.id;
        self.run(&format!(
            "hostler dlq replay {DEAD} --signature {signature} --handler {CORRECTED_FILE} --dry-run --limit 3"
        ))
        .await?;
        self.say(
            "\n4. It is deployed while orders come in. It is a canary first: it gets 30 % of them, for 4 seconds, and its \
             failures are compared.",
        );
        self.run(&format!("hostler deploy {CORRECTED_FILE} --queue {QUEUE}"))
            .await?;
        let versions = format!("hostler versions --queue {QUEUE}");
        let store = Store::new(self.connector.link("demo"), QUEUE);
        self.until("the corrected version is on trial", async || {
            Ok(taken(&store).await?.map(drop))
        })
        .await?;
        self.run(&versions).await?;
        self.until("the corrected version takes over", async || {
            Ok(taken(&store).await?.filter(|is_all| *is_all))
        })
        .await?;
        self.say("\n   It did not do worse, so it has taken over. A worse one would have been rolled back.");
        self.run(&versions).await
    }

    async fn replay(&self) -> Result<(), Error> {
        let cause = self.mistake().await?;
        let letters = DeadLetters::new(self.connector, DEAD);
        let newest = letters.find(&cause.newest).await?;
        let newest = newest.and_then(|letter| letter.source_id);
        let newest = newest.unwrap_or_default();
        self.say("\n5. The orders that died of the mistake go back to the queue. The corrected version charges them.");
        let signature = &cause.id;
        self.run(&format!(
            "hostler dlq replay {DEAD} --signature {signature}"
        ))
        .await?;
        self.until("the replayed orders are charged", async || {
            let queues = named(&self.connector.link("queues"), QUEUE).await?;
            let traced = trace(self.connector, &queues, &newest, NEWEST).await;
            let mut found = traced.found.iter();
            let is_done = found.all(|found| found.state == Stage::Settled);
            Ok((is_done && traced.problems.is_empty()).then_some(()))
        })
        .await?;
        self.run(&format!("hostler dlq groups {DEAD}")).await
    }

    fn end(&self) {
        let mut text = "\nThat is all.".to_owned();
        if !self.pace.once {
            text.push_str(
                " Orders come in until Ctrl-C, which ends everything. Until then, try:\n",
            );
            for line in [
                format!("watch {QUEUE}"),
                format!("dlq peek {DEAD}"),
                "publish --body '{\"id\":\"B-1\",\"currency\":\"CHF\",\"cents\":100}'".to_owned(),
                format!("rollback --queue {QUEUE}"),
            ] {
                text.push_str(&format!("\n   hostler {line}"));
            }
            text.push_str("\n\n");
        }
        text.push_str("\nYour own handler: hostler new --lang rust billing");
        self.say(&text);
    }

    /// Run a command after a pause.
    async fn run(&self, line: &str) -> Result<(), Error> {
        if self.pace.is_read {
            sleep(READING).await;
        }
        self.terminal.run(line).await
    }

    async fn causes(&self) -> Result<Groups, Error> {
        let letters = DeadLetters::new(self.connector, DEAD);
        Ok(letters.groups(Filter::default()).await?)
    }

    /// The dead letters of the mistake.
    async fn mistake(&self) -> Result<Group, Error> {
        self.until("orders in yen are dead letters", async || {
            let mut groups = self.causes().await?.groups.into_iter();
            Ok(groups.find(|group| group.signature.contains(MISTAKE)))
        })
        .await
    }

    /// Look again and again, until there is a result.
    async fn until<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if begun.elapsed() > STEP_MAX {
                let after = STEP_MAX.as_secs();
                return Err(Error::Step(format!("not within {after} seconds: {what}")));
            }
            sleep(POLL).await;
        }
    }
}

/// Whether a host runs the corrected version for all messages; `None` = for no message yet.
async fn taken(store: &Store) -> Result<Option<bool>, Error> {
    let digest = verify::digest(&corrected());
    let mut taken = None;
    for host in HostSeen::parse_all(&store.hosts().await?) {
        let handler = host.handler;
        match (handler.canary, handler.refused) {
            _ if *handler.current.digest == *digest => taken = Some(true),
            (Some(canary), _) if *canary.digest == *digest => taken = Some(false),
            (_, Some(refused)) if *refused.digest == *digest => {
                let why = format!("the corrected version was refused: {}", refused.reason);
                return Err(Error::Step(why));
            }
            _ => {}
        }
    }
    Ok(taken)
}
