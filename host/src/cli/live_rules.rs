//! The live settings of a queue, as a host with these settings applies them: for `inspect` and `watch`.

use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::config::{DeadLetter, Effective, QueueKind, Sources};
use crate::host::settings::policy_values;
use crate::policies::Policies;
use crate::queue::kind::Place;
use crate::redis::connection::Link;

/// The live settings of a queue.
#[derive(Debug, Default, Serialize)]
pub(super) struct LiveRules {
    rules: Vec<LiveRule>,
    /// Why policies are ignored, if they are.
    policies_ignored: Option<String>,
    /// Where dead letters go.
    #[serde(skip)]
    pub(super) dead_letter: Option<DeadLetter>,
}

#[derive(Debug, Serialize)]
struct LiveRule {
    setting: &'static str,
    value: Option<String>,
    /// `default`, `policy:<key or pattern>`, `<file>:<line>`, the variable, or the flag.
    from: String,
}

impl LiveRules {
    /// Read the policies of the queue and add the settings of this command. If the user may not read
    /// policies, the settings alone count.
    pub(super) async fn read(
        policies: Link,
        sources: &Sources,
        queue: &QueueKind,
        dead_letter: Option<DeadLetter>,
    ) -> Self {
        let ignored = match Policies::new(policies).of_queue(queue.name()).await {
            Ok(found) => {
                let values = policy_values(&found);
                let with_policies = || sources.collect_with(None, values.clone());
                match with_policies().rules(queue) {
                    Ok(dead_letter) => {
                        let unseen = found.patterns_error.map(|error| error.to_string());
                        return Self::new(with_policies().effective(), unseen, dead_letter);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        Self::new(sources.collect().effective(), Some(ignored), dead_letter)
    }

    fn new(
        effective: Vec<Effective>,
        policies_ignored: Option<String>,
        dead_letter: Option<DeadLetter>,
    ) -> Self {
        let live = effective.into_iter().filter(|setting| setting.is_live);
        let rule = |setting: Effective| LiveRule {
            setting: setting.key,
            value: setting.value,
            from: setting.source.to_string(),
        };
        Self {
            rules: live.map(rule).collect(),
            policies_ignored,
            dead_letter,
        }
    }

    pub(super) fn text(&self) -> String {
        let rows = self.rules.iter().map(|rule| {
            let value = rule.value.as_deref().unwrap_or("-");
            [rule.setting.to_owned(), value.to_owned(), rule.from.clone()]
        });
        let mut text = output::titled(["rule", "value", "from"], rows);
        if let Some(why) = &self.policies_ignored {
            text.push_str(&format!("\n\npolicies are ignored: {why}"));
        }
        text
    }
}

/// A channel holds nothing: refuse to look at one.
pub(super) fn refuse_channel(queue: &QueueKind, verb: &str) -> Result<(), Failure> {
    if queue.place() != Place::PubSub {
        return Ok(());
    }
    let what = format!("a channel holds nothing: there is nothing to {verb}");
    Err(Failure::new(Exit::Usage, what).hint("give `--stream` or `--list`"))
}
