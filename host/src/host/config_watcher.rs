//! Live reload: a running host follows its configuration file, and the policies in Redis.
//!
//! Live settings are read together with the fixed ones, and checked as at the start. A wrong file or
//! a wrong policy is reported and ignored: the active rules stay.
//!
//! A file or a policy that cannot be read is not absent: the host keeps what it knows, and is not ready. Before the
//! first message it waits until it knows its policies. A dead-letter key that was taken away, or that cannot be
//! used, lets no message be discarded: dead letters wait in the queue for another word of the operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use crate::config::settings::{dead_letter_key, paused_key};
use crate::config::{Config, Effective, FILE_MAX, PolicyValue, Sources};
use crate::file_watch::{Change, FileWatch, REST};
use crate::grants::configuration::rules::Values;
use crate::host::ReloadSignals;
use crate::host::connect::PAUSES;
use crate::host::settings::{live_rules, queue_options, shown};
use crate::policies::{self, Part, Policies, Stored};
use crate::policy_change::values;
use crate::queue::kind::QueueOptions;
use crate::queue::startup::StartError;
use crate::redis::connection::Connector;
use crate::runtime::{Control, Rules};
use crate::telemetry::health::{Cause, Health};
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
    health: Health,
    status: Status,
    /// The policies that were read last: of the queue itself, and by pattern; `None` = not yet.
    own: Option<Vec<Stored>>,
    by_pattern: Option<Vec<Stored>>,
    /// What cannot be read now, and why.
    unreadable: BTreeMap<&'static str, String>,
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
    /// The last problem of wrong rules that was logged.
    refusal: Option<String>,
    /// The user lacks the right to read policies. This is logged once.
    is_blind: bool,
}

/// The names of what cannot be read.
const FILE: &str = "the configuration file";
const OWN: &str = "the policy of the queue";
const BY_PATTERN: &str = "policies by pattern";
const CHECKS: &str = "what the rules need";

/// What a host does while it cannot read rules.
const HELD: &str = "those that were read last hold";

/// Whether the user may not read this hash.
fn is_forbidden(part: &Part) -> bool {
    part.unreadable
        .as_ref()
        .is_some_and(policies::Error::is_missing_right)
}

fn is_pause(policy: &PolicyValue) -> bool {
    policy.key == paused_key()
}

/// The texts that rules are made from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct RawRules {
    /// Another text of the file than at the start.
    file: Option<String>,
    policies: Vec<PolicyValue>,
}

/// Why raw rules are not applied.
enum Unusable {
    /// They are wrong: the problem and its hint.
    Wrong(String, Option<String>),
    /// Redis cannot say for now, and why.
    Unknown(String),
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
        (health, status): (&Health, &Status),
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
            health: health.clone(),
            status: status.clone(),
            own: None,
            by_pattern: None,
            unreadable: BTreeMap::new(),
            latest: RawRules::default(),
            applied: RawRules::default(),
            rules: live_rules(config, options),
            options: options.clone(),
            values: config.sandbox.grants.config.clone(),
            undecided: false,
            refusal: None,
            is_blind: false,
        }
    }

    /// Read the policies before the first message, until they are known. Returns this configuration with the
    /// policies applied, as far as they are right.
    pub async fn begin(&mut self, mut config: Config) -> Config {
        let mut tries = 0;
        loop {
            self.read_policies().await;
            if self.own.is_some() && self.by_pattern.is_some() {
                config = self.apply_latest().await.unwrap_or(config);
                if !self.undecided {
                    break;
                }
            }
            self.show_unreadable("no message is read until they can be");
            tries += 1;
            sleep(PAUSES.delay(tries, fastrand::f64())).await;
        }
        let key = dead_letter_key();
        if self.refusal.is_some() && self.latest.policies.iter().any(|policy| policy.key == key) {
            // The operator has named a key, and it cannot be used.
            self.rules.policy.has_dead_letter = true;
            config.policy.has_dead_letter = true;
        }
        self.show_unreadable(HELD);
        self.publish_status();
        self.log_changes();
        config
    }

    /// Follow both sources for as long as the loop takes rules.
    pub async fn run(mut self, control: mpsc::Sender<Control>) {
        let path = self.sources.file.clone();
        let mut file = path.map(|path| {
            let watch = FileWatch::new(path, FILE_MAX).resting(REST);
            let text = self.sources.text.as_deref().unwrap_or_default();
            watch.with_known_content(text.as_bytes())
        });
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
                    // Its faults are reported again.
                    self.refusal = None;
                    if let Some(file) = &mut file {
                        file.forget();
                    }
                    false
                }
                _ = ticks.tick() => self.read_policies().await,
            };
            if !is_new && !self.undecided {
                self.show_unreadable(HELD);
                continue;
            }
            let is_changed = self.apply_latest().await.is_some();
            self.show_unreadable(HELD);
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
                    self.unreadable.remove(FILE);
                    self.latest.file = Some(text);
                    return true;
                }
                Err(_) => "it is not UTF-8".to_owned(),
            },
            Change::Restored => {
                info!("the configuration file can be read again, and has not changed");
                self.unreadable.remove(FILE);
                return false;
            }
            Change::Unreadable(reason) | Change::TooLarge(reason) => reason,
        };
        error!(
            reason,
            "the configuration file cannot be read: the active rules stay"
        );
        self.unreadable.insert(FILE, reason);
        false
    }

    /// Read the policies; each hash that cannot be read stays as it was read last. Returns whether they have
    /// changed.
    async fn read_policies(&mut self) -> bool {
        let Some(policies) = &self.policies else {
            return false;
        };
        let found = policies.of_queue(&self.queue).await;
        if self.only_pause && is_forbidden(&found.own) {
            // It may serve without: Redis would log a refusal each time.
            self.policies = None;
        }
        let before = (self.own.take(), self.by_pattern.take());
        self.own = self.known(OWN, found.own, before.0);
        self.by_pattern = self.known(BY_PATTERN, found.by_pattern, before.1);
        let all: Vec<Stored> = [&self.own, &self.by_pattern]
            .into_iter()
            .flatten()
            .flatten()
            .cloned()
            .collect();
        let mut policies = values(&all);
        if self.only_pause {
            policies.retain(is_pause);
        }
        let is_new = policies != self.latest.policies;
        self.latest.policies = policies;
        is_new
    }

    /// What is known of a hash now. `before`: what was read last.
    fn known(
        &mut self,
        name: &'static str,
        found: Part,
        before: Option<Vec<Stored>>,
    ) -> Option<Vec<Stored>> {
        let has_rules = before.as_ref().is_some_and(|before| !before.is_empty());
        if is_forbidden(&found) && !has_rules {
            // The operator gives this host no policies.
            if let Some(why) = found.unreadable.filter(|_| !self.is_blind) {
                warn!(hint = why.hint(), %why, "cannot read all policies");
                self.is_blind = true;
            }
            self.unreadable.remove(name);
            return Some(Vec::new());
        }
        match found.known() {
            Ok(settings) => {
                self.unreadable.remove(name);
                Some(settings)
            }
            Err(why) => {
                self.unreadable.insert(name, why.to_string());
                before
            }
        }
    }

    /// Say what cannot be read, and what follows.
    fn show_unreadable(&self, what_follows: &'static str) {
        let cause = Cause::RulesUnreadable;
        if self.unreadable.is_empty() {
            if self.health.clear(cause) {
                info!("all rules can be read again");
            }
            return;
        }
        let texts = self.unreadable.iter();
        let texts: Vec<String> = texts.map(|(name, why)| format!("{name}: {why}")).collect();
        let why = texts.join("; ");
        if self.health.impede(cause, &*why) {
            warn!(why, "rules cannot be read: {what_follows}");
        }
    }

    /// Apply as much of the latest rules as is right. Returns the configuration if the rules changed.
    async fn apply_latest(&mut self) -> Option<Config> {
        self.undecided = false;
        self.unreadable.remove(CHECKS);
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
                Err(Unusable::Unknown(why)) => {
                    self.undecided = true;
                    self.unreadable.insert(CHECKS, why);
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
        let mut config = loaded.value;
        config.policy = config.policy.behind(&self.rules.policy);
        let rules = live_rules(&config, &queue_options(&config));
        let options = self.options.clone().with(rules.queue.clone());
        if rules.queue != self.rules.queue {
            match options.check(&self.connector).await {
                Ok(_) => {}
                Err(error) if error.may_pass() => {
                    return Err(Unusable::Unknown(error.to_string()));
                }
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
        let limits = self.rules.queue.limits.iter();
        self.status.limits(limits.map(shown).collect());
        self.status.refused(self.refusal.clone());
    }
}
