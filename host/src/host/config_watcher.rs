//! Live reload: a running host follows its configuration file, and the policies in Redis.
//!
//! Live settings are read together with the fixed ones, and checked as at the start. A wrong file or
//! a wrong policy is reported and ignored: the active rules stay.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, error, info, warn};

use crate::config::settings::paused_key;
use crate::config::{Config, Effective, FILE_MAX, PolicyValue, Sources};
use crate::file_watch::{Change, FileWatch};
use crate::host::ReloadSignals;
use crate::host::settings::{live_rules, policy_values, queue_options};
use crate::policies::Policies;
use crate::queue::kind::QueueOptions;
use crate::redis::connection::Connector;
use crate::redis::startup::StartError;
use crate::runtime::{Control, Rules};
use crate::sandbox::Values;
use crate::telemetry::status::Status;

/// Every host of a queue applies a new policy within this time.
const APPLIED_WITHIN: Duration = Duration::from_secs(2);
/// How often policies are read.
const READ_EVERY: Duration = Duration::from_secs(1);
// The rest is for the round trip and for the check.
const _: () = assert!(READ_EVERY.as_millis() * 2 <= APPLIED_WITHIN.as_millis());

/// Watches the sources of one host's live settings.
pub struct ConfigWatcher {
    sources: Sources,
    connector: Connector,
    /// `None`: the user of a queue at most once may not read them.
    policies: Option<Policies>,
    /// A queue at most once follows no policy but a pause.
    only_pause: bool,
    queue: Arc<str>,
    status: Status,
    /// What was read last, right or wrong.
    latest: RawRules,
    /// What the active rules were made from.
    applied: RawRules,
    effective: Vec<Effective>,
    /// Those before, until the change is logged.
    before: Option<Vec<Effective>>,
    rules: Rules,
    options: QueueOptions,
    /// The values of `grant.config`, which handlers share.
    values: Option<Values>,
    /// Redis could not yet say whether the latest rules can be used.
    undecided: bool,
    /// The last problem that was logged: of rules that are wrong, and of policies that cannot be read.
    refusal: Option<String>,
    unreadable: Option<String>,
}

fn is_pause(policy: &PolicyValue) -> bool {
    policy.key == paused_key()
}

/// The texts that rules are made from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct RawRules {
    /// The text of the file; `None` = as it was at the start.
    file: Option<String>,
    policies: Vec<PolicyValue>,
}

/// Why raw rules are not applied.
enum Unusable {
    /// They are wrong: the problem and its hint.
    Wrong(String, Option<String>),
    /// Redis cannot say for now.
    Unknown,
}

/// Rules that can be applied.
struct Checked {
    config: Config,
    options: QueueOptions,
    rules: Rules,
    effective: Vec<Effective>,
}

impl ConfigWatcher {
    /// Watch the sources of this configuration.
    pub fn new(
        sources: Sources,
        config: &Config,
        options: &QueueOptions,
        connector: &Connector,
        status: &Status,
    ) -> Self {
        Self {
            effective: sources.collect().effective(),
            before: None,
            sources,
            connector: connector.clone(),
            policies: Some(Policies::new(connector.link("policies"))),
            only_pause: matches!(
                options,
                QueueOptions::SimpleList(_) | QueueOptions::PubSub(_)
            ),
            queue: Arc::clone(config.queue.name()),
            status: status.clone(),
            latest: RawRules::default(),
            applied: RawRules::default(),
            rules: live_rules(config, options),
            options: options.clone(),
            values: config.sandbox.grants.config.clone(),
            undecided: false,
            refusal: None,
            unreadable: None,
        }
    }

    /// Read the policies once, before the first message. Returns the configuration with the policies
    /// applied, if they change it and are right.
    pub async fn begin(&mut self) -> Option<Config> {
        self.read_policies().await;
        let changed = self.apply_latest().await;
        self.publish_status();
        self.log_changes();
        changed
    }

    /// Follow both sources for as long as the loop takes rules.
    pub async fn run(mut self, control: mpsc::Sender<Control>) {
        // The first change is the file as it is now: it may have changed since the start.
        let path = self.sources.file.clone();
        let mut file = path.map(|path| FileWatch::new(path, FILE_MAX));
        // Without it, only a change of the file is noticed.
        let mut reloads = file.as_ref().and_then(|_| ReloadSignals::listen().ok());
        let mut ticks = interval(READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let file_changed = OptionFuture::from(file.as_mut().map(FileWatch::changed));
            let asked = OptionFuture::from(reloads.as_mut().map(ReloadSignals::next));
            let is_new = tokio::select! {
                Some(change) = file_changed => self.take_file(change),
                Some(()) = asked => {
                    info!("SIGHUP: reading the configuration file again");
                    // What is wrong with it is said again.
                    self.refusal = None;
                    if let Some(file) = &mut file {
                        file.forget();
                    }
                    false
                }
                _ = ticks.tick() => self.read_policies().await,
            };
            if !is_new && !self.undecided {
                continue;
            }
            let is_changed = self.apply_latest().await.is_some();
            self.publish_status();
            let rules = Box::new(self.rules.clone());
            if is_changed && control.send(Control::Rules(rules)).await.is_err() {
                return;
            }
            self.log_changes();
        }
    }

    /// Take a change of the file. Returns whether there is a new text.
    fn take_file(&mut self, change: Change) -> bool {
        let reason = match change {
            Change::Content(content) => match String::from_utf8(content) {
                Ok(text) => {
                    self.latest.file = Some(text);
                    return true;
                }
                Err(_) => "it is not UTF-8".to_owned(),
            },
            Change::Restored => {
                info!("the configuration file can be read again, and has not changed");
                return false;
            }
            Change::Unreadable(reason) | Change::TooLarge(reason) => reason,
        };
        error!(
            reason,
            "the configuration file cannot be read: the active rules stay"
        );
        false
    }

    /// Read the policies. Returns whether they have changed.
    async fn read_policies(&mut self) -> bool {
        let Some(policies) = &self.policies else {
            return false;
        };
        let found = match policies.of_queue(&self.queue).await {
            Ok(found) => found,
            Err(error) => {
                // The loop reports a Redis that does not answer.
                debug!(%error, "could not read policies");
                if error.class() == crate::redis::Class::Configuration {
                    self.warn_unreadable(&error.to_string());
                    if self.only_pause {
                        // It may serve without: Redis would log a refusal each time.
                        self.policies = None;
                    }
                }
                return false;
            }
        };
        match &found.patterns_error {
            Some(error) => self.warn_unreadable(&error.to_string()),
            None => self.unreadable = None,
        }
        let mut policies = policy_values(&found);
        if self.only_pause {
            policies.retain(is_pause);
        }
        let is_new = policies != self.latest.policies;
        self.latest.policies = policies;
        is_new
    }

    fn warn_unreadable(&mut self, why: &str) {
        if self.unreadable.as_deref() != Some(why) {
            let hint = "grant the user `+hgetall` and the keys of policies: docs/policies.md";
            warn!(why, hint, "cannot read all policies");
            self.unreadable = Some(why.to_owned());
        }
    }

    /// Apply as much of the latest rules as is right. Returns the configuration if the rules changed.
    async fn apply_latest(&mut self) -> Option<Config> {
        self.undecided = false;
        let (latest, applied) = (&self.latest, &self.applied);
        let mut candidates = vec![latest.clone()];
        // If only one of the sources is wrong, the change of the other one is applied.
        if latest.file != applied.file && latest.policies != applied.policies {
            candidates.push(RawRules {
                policies: applied.policies.clone(),
                ..latest.clone()
            });
            candidates.push(RawRules {
                file: applied.file.clone(),
                ..latest.clone()
            });
        }
        // A pause does not wait until the other policies are right.
        let mut paused = applied.clone();
        paused.policies.retain(|policy| !is_pause(policy));
        let pause = latest.policies.iter().filter(|policy| is_pause(policy));
        paused.policies.extend(pause.cloned());
        candidates.push(paused);
        let mut wrong = None;
        for raw in candidates {
            if raw == self.applied {
                break;
            }
            match self.check(&raw).await {
                Ok(checked) => {
                    self.report_refusal(wrong);
                    return self.apply(raw, checked);
                }
                Err(Unusable::Unknown) => {
                    self.undecided = true;
                    return None;
                }
                Err(Unusable::Wrong(what, hint)) => wrong = wrong.or(Some((what, hint))),
            }
        }
        self.report_refusal(wrong);
        None
    }

    /// Check raw rules, together with the settings that do not change.
    async fn check(&self, raw: &RawRules) -> Result<Checked, Unusable> {
        let policies = raw.policies.clone();
        let collected = self.sources.collect_with(raw.file.as_deref(), policies);
        let effective = collected.effective();
        let loaded = collected.config().map_err(|error| {
            let hint = error.problems.first().and_then(|p| p.hint.clone());
            Unusable::Wrong(error.to_string(), hint)
        })?;
        let config = loaded.value;
        let rules = live_rules(&config, &queue_options(&config));
        let options = self.options.clone().with(rules.queue.clone());
        if rules.queue != self.rules.queue {
            match options.check(&self.connector).await {
                Ok(_) => {}
                Err(error) if error.may_pass() => return Err(Unusable::Unknown),
                // The active rules have the same problem: these rules are not its cause.
                Err(error) if self.is_known(&error).await => {}
                Err(error) => return Err(Unusable::Wrong(error.to_string(), error.hint())),
            }
        }
        Ok(Checked {
            config,
            options,
            rules,
            effective,
        })
    }

    /// Whether the active rules have the same problem.
    async fn is_known(&self, error: &StartError) -> bool {
        let known = self.options.check(&self.connector).await;
        known.is_err_and(|known| known.to_string() == error.to_string())
    }

    fn apply(&mut self, raw: RawRules, checked: Checked) -> Option<Config> {
        self.applied = raw;
        let before = std::mem::replace(&mut self.effective, checked.effective);
        self.before = Some(before);
        self.options = checked.options;
        if let (Some(values), Some(new)) = (&self.values, &checked.config.sandbox.grants.config)
            && values != new
        {
            values.adopt(new);
            let names = new.names().join(", ");
            info!(names, "the values of `grant.config` changed");
        }
        if self.rules == checked.rules {
            return None;
        }
        self.rules = checked.rules;
        Some(checked.config)
    }

    /// Log once that rules are wrong, and forget it when they are right again.
    fn report_refusal(&mut self, wrong: Option<(String, Option<String>)>) {
        let Some((what, hint)) = wrong else {
            self.refusal = None;
            return;
        };
        if self.refusal.as_ref() != Some(&what) {
            error!(what, hint, "wrong rules are ignored: the active rules stay");
        }
        self.refusal = Some(what);
    }

    /// Log the settings that have changed, and those that change at the next start only. The loop has the rules
    /// by now: they hold for each message that comes after the line.
    fn log_changes(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        let pairs = before.iter().zip(&self.effective);
        let changed: Vec<&Effective> = pairs
            .filter(|(old, new)| old.value != new.value)
            .map(|(_, new)| new)
            .collect();
        let list = |is_live: bool| {
            let of_kind = changed.iter().filter(|e| e.is_live_in_file == is_live);
            let texts = of_kind.map(|e| {
                let value = e.value.as_deref().unwrap_or("-");
                format!("{}={value} ({})", e.key, e.source)
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        let live = list(true);
        if !live.is_empty() {
            info!(changed = live, "rules changed");
        }
        let later = list(false);
        if !later.is_empty() {
            warn!(
                changed = later,
                "settings changed in the file that apply after the next start only"
            );
        }
    }

    /// Show the active rules and the last refusal in `/status`.
    fn publish_status(&self) {
        let live = self.effective.iter().filter(|setting| setting.is_live);
        self.status.rules(live.map(|setting| {
            let value = setting.value.clone();
            (setting.key, value, setting.source.to_string())
        }));
        self.status.refused(self.refusal.clone());
    }
}
