//! The rules of a queue that may change under its hosts: what holds, and where it comes from.

use serde::Serialize;

use crate::cli::flags::Sources;
use crate::cli::{keeper, output};
use crate::config::{DeadLetter, Effective, QueueKind};
use crate::policies::Policies;
use crate::redis::connection::Link;

/// What holds for a host with these settings.
#[derive(Debug, Default, Serialize)]
pub(in crate::cli) struct Ruled {
    /// Each setting as it stands.
    rules: Vec<Rule>,
    /// Why policies do not count, if they do not.
    policies_ignored: Option<String>,
    /// Where dead letters go.
    #[serde(skip)]
    pub(in crate::cli) dead_letter: Option<DeadLetter>,
}

#[derive(Debug, Serialize)]
struct Rule {
    setting: &'static str,
    value: Option<String>,
    /// `default`, `policy:<key or pattern>`, `<file>:<line>`, the variable, or the flag.
    from: String,
}

impl Ruled {
    /// The settings of this command, and the policies of its queue. A user who may not see policies
    /// sees the rest.
    pub(in crate::cli) async fn look(
        link: Link,
        sources: &Sources,
        queue: &QueueKind,
        dead_letter: Option<DeadLetter>,
    ) -> Self {
        let ignored = match Policies::new(link).of_queue(queue.name()).await {
            Ok(found) => {
                let policies = keeper::values(&found);
                let with = || sources.collect(None, policies.clone());
                match with().rules(queue) {
                    Ok(dead_letter) => {
                        let unseen = found.unseen.map(|error| error.to_string());
                        return Self::new(with().effective(), unseen, dead_letter);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        let without = sources.collect(None, Vec::new());
        Self::new(without.effective(), Some(ignored), dead_letter)
    }

    fn new(
        effective: Vec<Effective>,
        policies_ignored: Option<String>,
        dead_letter: Option<DeadLetter>,
    ) -> Self {
        let live = effective.into_iter().filter(|setting| setting.is_live);
        let rule = |setting: Effective| Rule {
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
        let head = ["rule", "value", "from"].map(str::to_owned);
        let rows = self.rules.iter().map(|rule| {
            let value = rule.value.as_deref().unwrap_or("-");
            [rule.setting.to_owned(), value.to_owned(), rule.from.clone()]
        });
        let mut text = output::table(std::iter::once(head).chain(rows));
        if let Some(why) = &self.policies_ignored {
            text.push_str(&format!("\n\npolicies do not count: {why}"));
        }
        text
    }
}
