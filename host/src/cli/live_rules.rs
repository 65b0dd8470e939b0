//! The live settings of a queue: as its hosts say that they follow them, or else as a host with the
//! settings of this command would. For `inspect` and `watch`.

use serde::Serialize;

use crate::cli::named::FoundQueue;
use crate::cli::output;
use crate::config::{Collected, DeadLetter, Effective, PolicyValue, QueueKind};
use crate::policies::Policies;
use crate::policy_change::values;
use crate::redis::connection::Link;
use crate::rollout::follower::HostSeen;
use crate::telemetry::status::ActiveRule;

/// The live settings of a queue.
#[derive(Debug, Default, Serialize)]
pub(super) struct LiveRules {
    rules: Vec<LiveRule>,
    /// The hosts that follow them.
    rules_of: RulesOf,
    /// Why policies are ignored, if they are.
    policies_ignored: Option<String>,
    /// Where dead letters go.
    #[serde(skip)]
    pub(super) dead_letter: Option<DeadLetter>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RulesOf {
    /// The hosts that serve the queue.
    Hosts,
    /// No host says its rules: a host with the settings of this command would.
    #[default]
    Settings,
}

#[derive(Debug, Serialize)]
struct LiveRule {
    /// It comes from `default`, `policy:<key or pattern>`, `<file>:<line>`, the variable, or the flag.
    #[serde(flatten)]
    rule: ActiveRule,
    /// The hosts that follow it, where hosts differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
}

impl LiveRules {
    /// The rules of these hosts of the queue; without hosts, those of its policies and of the settings of
    /// this command. If the user may not read policies, the settings alone count.
    pub(super) async fn read(policies: Link, found: &FoundQueue, hosts: &[HostSeen]) -> Self {
        let mut rules = Self::of_settings(policies, found).await;
        let telling: Vec<&HostSeen> = hosts.iter().filter(|h| !h.rules.is_empty()).collect();
        if let Some(first) = telling.first() {
            rules.rules = merged(&telling);
            rules.rules_of = RulesOf::Hosts;
            rules.policies_ignored = None;
            // A dead-letter queue that this command names is the one that is looked at.
            let told = || dead_letter_of(&first.rules, &found.queue);
            rules.dead_letter = rules.dead_letter.or_else(told);
        }
        rules
    }

    async fn of_settings(policies: Link, found: &FoundQueue) -> Self {
        let FoundQueue { sources, queue, .. } = found;
        let dead_letter = found.dead_letter.clone();
        let ignored = match Policies::new(policies)
            .of_queue(queue.name())
            .await
            .stored()
        {
            Ok((found, unread)) => {
                let values = values(&found);
                let with_policies = || sources.collect_with(None, values.clone());
                match with_policies().rules(queue) {
                    Ok(dead_letter) => {
                        let unseen = unread.map(|error| error.to_string());
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
            rule: ActiveRule {
                setting: setting.key.to_owned(),
                value: setting.value,
                from: setting.source.to_string(),
            },
            hosts: Vec::new(),
        };
        Self {
            rules: live.map(rule).collect(),
            rules_of: RulesOf::Settings,
            policies_ignored,
            dead_letter,
        }
    }

    pub(super) fn text(&self) -> String {
        let differ = self.rules.iter().any(|rule| !rule.hosts.is_empty());
        let row = |LiveRule { rule, .. }: &LiveRule| {
            let value = rule.value.as_deref().unwrap_or("-");
            [rule.setting.clone(), value.to_owned(), rule.from.clone()]
        };
        let mut text = match self.rules_of {
            RulesOf::Hosts => String::new(),
            RulesOf::Settings => {
                "no host says its rules; a host with the settings of this command would use these\n\n"
                    .to_owned()
            }
        };
        text.push_str(&match differ {
            false => output::titled(["rule", "value", "from"], self.rules.iter().map(row)),
            true => {
                let rows = self.rules.iter().map(|rule| {
                    let [setting, value, from] = row(rule);
                    let hosts = match rule.hosts.is_empty() {
                        true => "all".to_owned(),
                        false => rule.hosts.join(", "),
                    };
                    [setting, value, from, hosts]
                });
                output::titled(["rule", "value", "from", "hosts"], rows)
            }
        });
        if let Some(why) = &self.policies_ignored {
            text.push_str(&format!("\n\npolicies are ignored: {why}"));
        }
        text
    }
}

/// The rules of several hosts. Where hosts differ, a rule has a row for each value and origin.
fn merged(hosts: &[&HostSeen]) -> Vec<LiveRule> {
    let mut merged: Vec<LiveRule> = Vec::new();
    for host in hosts {
        for rule in &host.rules {
            if let Some(same) = merged.iter_mut().find(|known| known.rule == *rule) {
                same.hosts.push(host.consumer.clone());
                continue;
            }
            // Behind the other values of the setting.
            let is_alike = |known: &LiveRule| known.rule.setting == rule.setting;
            let last = merged.iter().rposition(is_alike);
            let rule = LiveRule {
                rule: rule.clone(),
                hosts: vec![host.consumer.clone()],
            };
            merged.insert(last.map_or(merged.len(), |last| last + 1), rule);
        }
    }
    for rule in &mut merged {
        if rule.hosts.len() == hosts.len() {
            rule.hosts.clear();
        }
    }
    merged
}

/// Where dead letters go under these rules; `None` if they are those of another version of hostler.
fn dead_letter_of(rules: &[ActiveRule], queue: &QueueKind) -> Option<DeadLetter> {
    let set = rules.iter().filter(|rule| rule.from != "default");
    let value = |rule: &ActiveRule| {
        Some(PolicyValue {
            key: rule.setting.clone(),
            text: rule.value.clone()?,
            target: "".into(),
        })
    };
    let policies = set.filter_map(value).collect();
    let collected = Collected::of_policies(policies);
    collected.rules(queue).ok().flatten()
}
