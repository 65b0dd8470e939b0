//! A change of policies, for `hostler policy` and the dashboard: checked as hosts check it, then stored. A change
//! that hosts would not read or take is refused.

use std::collections::BTreeMap;

use crate::config::settings::{self, live_keys, paused_key};
use crate::config::{self, Collected, PolicyValue, QueueKind, RouteTable, Value, queue_of_type};
use crate::policies::{self, Policies, Scope, Stored, TEXT_MAX, effective};
use crate::redis::Error as RedisError;

/// Why policies are not changed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The change is wrong.
    #[error("{what}")]
    Wrong {
        /// What is wrong.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// Settings are wrong, each for itself or together.
    #[error(transparent)]
    Settings(#[from] config::Error),
    /// Redis cannot store it.
    #[error(transparent)]
    Policies(#[from] policies::Error),
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        Self::Policies(error.into())
    }
}

impl Refusal {
    fn wrong(what: impl Into<String>, hint: Option<&str>) -> Self {
        Self::Wrong {
            what: what.into(),
            hint: hint.map(str::to_owned),
        }
    }
}

/// The policies that are stored for some queues.
#[derive(Debug, Default)]
pub struct Found {
    /// Those of one queue, with those of patterns that match it; or those of one pattern.
    pub settings: Vec<Stored>,
    /// Why hosts do not take all of them, if so.
    pub unreadable: Option<policies::Error>,
}

/// The key or pattern of a policy has a length that hosts read.
pub fn check_scope(scope: &Scope) -> Result<(), Refusal> {
    match scope.text().len() {
        1..=TEXT_MAX => Ok(()),
        _ => {
            let what = format!("a key or pattern has 1 to {TEXT_MAX} bytes");
            Err(Refusal::wrong(what, None))
        }
    }
}

/// The stored policies of these queues.
pub async fn stored(policies: &Policies, scope: &Scope) -> Result<Found, RedisError> {
    let (settings, unreadable) = match scope {
        Scope::Queue(key) => policies.of_queue(key).await.stored()?,
        Scope::Match(_) => {
            let (mut all, why) = policies.by_pattern().await.stored()?;
            all.retain(|stored| stored.scope == *scope);
            (all, why)
        }
    };
    Ok(Found {
        settings,
        unreadable,
    })
}

/// Set these settings for these queues. Returns what is stored for them then.
pub async fn set(
    policies: &Policies,
    scope: &Scope,
    wanted: BTreeMap<String, String>,
) -> Result<Found, Refusal> {
    check_scope(scope)?;
    let wanted = parsed(wanted, scope)?;
    let mut found = stored(policies, scope).await?;
    let is_wanted = |s: &Stored| wanted.iter().any(|wanted| wanted.setting == s.setting);
    found
        .settings
        .retain(|s| s.scope != *scope || !is_wanted(s));
    found.settings.extend(wanted.iter().cloned());
    // Hosts follow a pause whatever the other policies are.
    if wanted.iter().any(|stored| stored.setting != paused_key()) {
        let kind = check(policies, scope, &found.settings).await?;
        check_targets(policies, kind, &found.settings).await?;
    }
    let pairs: Vec<_> = wanted.iter().map(|s| (&*s.setting, &*s.text)).collect();
    policies.set(scope, &pairs).await?;
    if found.unreadable.is_some() {
        // The change may have mended it.
        found = stored(policies, scope).await?;
    }
    Ok(found)
}

/// The settings, each checked for itself.
fn parsed(wanted: BTreeMap<String, String>, scope: &Scope) -> Result<Vec<Stored>, Refusal> {
    for (setting, text) in &wanted {
        if text.len() > TEXT_MAX {
            let what = format!("the value of `{setting}` is longer than {TEXT_MAX} bytes");
            return Err(Refusal::wrong(what, None));
        }
        if settings::find(setting).is_none() {
            let what = format!("unknown setting `{setting}`");
            let hint = format!("policies may set {}", live_keys());
            return Err(Refusal::wrong(what, Some(&hint)));
        }
    }
    let stored = wanted.into_iter().map(|(setting, text)| Stored {
        scope: scope.clone(),
        setting,
        text,
    });
    let stored: Vec<Stored> = stored.collect();
    check_alone(stored.iter().map(value).collect(), None)?;
    Ok(stored)
}

/// Check policies without the settings of any host.
fn check_alone(values: Vec<PolicyValue>, queue: Option<&QueueKind>) -> Result<(), config::Error> {
    Collected::of_policies(values).policies_alone(queue)
}

/// Why every host ignores a policy, if so.
pub fn problem(stored: &Stored) -> Option<config::Error> {
    check_alone(vec![value(stored)], None).err()
}

/// Check the rules together. Returns the kind of the queue, if there is one queue and it exists.
async fn check(
    policies: &Policies,
    scope: &Scope,
    found: &[Stored],
) -> Result<Option<&'static str>, Refusal> {
    let values = values(found);
    let Scope::Queue(key) = scope else {
        check_alone(values, None)?;
        return Ok(None);
    };
    let (kind, queue) = queue_of_type(key, &policies.kind_of_queue(key).await?);
    check_alone(values, Some(&queue))?;
    Ok(kind)
}

/// Check that dead letters go to keys of the queue's own type.
async fn check_targets(
    policies: &Policies,
    kind: Option<&'static str>,
    found: &[Stored],
) -> Result<(), Refusal> {
    let Some(kind) = kind else { return Ok(()) };
    for stored in effective(found) {
        let targets = match stored.setting.as_str() {
            "dead_letter.key" | "dead_letter.cycle_key" => vec![stored.text.clone()],
            "dead_letter.routes" => {
                let routes = RouteTable::parse(&stored.text).unwrap_or_default();
                routes.0.into_values().flatten().collect()
            }
            _ => continue,
        };
        for target in targets {
            let holds = policies.kind_of(&target).await?;
            if holds != "none" && holds != kind {
                let setting = &stored.setting;
                let what = format!(
                    "`{setting}`: the key `{target}` holds a {holds}, and the queue is a {kind}"
                );
                return Err(Refusal::wrong(what, Some("name another key")));
            }
        }
    }
    Ok(())
}

/// The policies that apply, as values of settings: for each setting the one with the highest precedence.
pub fn values(found: &[Stored]) -> Vec<PolicyValue> {
    effective(found).into_iter().map(value).collect()
}

/// A stored policy, as the value of a setting.
fn value(stored: &Stored) -> PolicyValue {
    PolicyValue {
        key: stored.setting.clone(),
        text: stored.text.clone(),
        target: stored.scope.text().clone(),
    }
}
