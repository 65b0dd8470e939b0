//! What the hosts of a queue make of a deployed version: `deploy` and `rollback` with `--wait`.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::text::one_line;
use crate::cli::{Exit, Failure};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;

/// How often hosts are asked.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// A queue without hosts that take deploys is asked for them for this long.
const HOSTS_WITHIN: Duration = Duration::from_secs(6);

/// Waits for the hosts.
pub(super) struct Waiting {
    digest: String,
    until: Instant,
    /// When each host had refused the same component before.
    refused_before: HashMap<String, u64>,
}

/// What the hosts made of it.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    verdict: Verdict,
    hosts: Vec<HostVerdict>,
}

/// What one host made of it; of all hosts, the worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// No host takes deploys.
    NoHosts,
    /// It refused the version, or gave it up.
    Refused,
    /// It has not decided yet.
    Undecided,
    /// It runs the version for all messages.
    Taken,
}

#[derive(Debug, Serialize)]
pub(super) struct HostVerdict {
    host: String,
    verdict: Verdict,
    /// Why not.
    why: Option<String>,
}

impl fmt::Display for HostVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            Verdict::NoHosts => "takes no deploys",
            Verdict::Refused => "refused it",
            Verdict::Undecided => "has not decided yet",
            Verdict::Taken => "runs it",
        };
        write!(f, "{} {word}", self.host)?;
        match &self.why {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

impl Outcome {
    /// The exit code of a command that has waited, or not.
    pub(super) fn exit(outcome: Option<&Self>) -> Exit {
        match outcome.map_or(Verdict::Taken, |outcome| outcome.verdict) {
            Verdict::Taken => Exit::Ok,
            Verdict::Refused => Exit::Component,
            Verdict::Undecided => Exit::TimedOut,
            Verdict::NoHosts => Exit::Unavailable,
        }
    }

    /// A line for each host, after others.
    pub(super) fn lines(outcome: Option<&Self>) -> String {
        let hosts = outcome.iter().flat_map(|outcome| &outcome.hosts);
        hosts
            .map(|host| format!("\n{}", one_line(&host.to_string())))
            .collect()
    }
}

impl Waiting {
    /// Wait for so long at most for the component with this digest. `before`: the hosts before its deploy.
    pub(super) fn new(limit: Duration, digest: &str, before: Option<Vec<String>>) -> Self {
        let before = HostSeen::parse_all(&before.unwrap_or_default());
        let refused = before.into_iter().filter_map(|host| {
            let refused = host.handler.refused?;
            (refused.digest == digest).then_some((host.consumer, refused.at_ms))
        });
        Self {
            digest: digest.to_owned(),
            until: Instant::now() + limit,
            refused_before: refused.collect(),
        }
    }

    /// Wait until each host that takes deploys has decided.
    pub(super) async fn until_decided(self, store: &Store) -> Result<Outcome, Failure> {
        let begun = Instant::now();
        loop {
            let mut hosts = HostSeen::parse_all(&store.hosts().await?);
            hosts.retain(|host| host.accepts_deploys);
            let hosts: Vec<_> = hosts.iter().map(|host| self.judge(host)).collect();
            let verdict = hosts.iter().map(|host| host.verdict).min();
            let is_over = Instant::now() >= self.until;
            let is_decided = match verdict {
                None => begun.elapsed() >= HOSTS_WITHIN,
                // Another host may still take it: the wait ends with the last decision.
                Some(_) => hosts.iter().all(|host| host.verdict != Verdict::Undecided),
            };
            if is_decided || is_over {
                let verdict = verdict.unwrap_or(Verdict::NoHosts);
                return Ok(Outcome { verdict, hosts });
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn judge(&self, host: &HostSeen) -> HostVerdict {
        let handler = &host.handler;
        let refused = handler.refused.as_ref();
        let refused = refused.filter(|refused| {
            refused.digest == self.digest
                && self.refused_before.get(&host.consumer) != Some(&refused.at_ms)
        });
        let (verdict, why) = if handler.current.digest == self.digest {
            (Verdict::Taken, None)
        } else if let Some(refused) = refused {
            let why = format!("at `{}`: {}", refused.step, refused.reason);
            (Verdict::Refused, Some(why))
        } else {
            let canary = handler.canary.as_ref();
            let canary = canary.filter(|canary| canary.digest == self.digest);
            let why = canary.map(|canary| format!("it is on trial with {}", canary.share));
            (Verdict::Undecided, why)
        };
        HostVerdict {
            host: host.consumer.clone(),
            verdict,
            why,
        }
    }
}
