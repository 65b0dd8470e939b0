//! Keeping the rules of a running host: it follows its configuration file, and the policies in Redis.
//!
//! What changes is read together with what stays, and checked as at the start. What is wrong is told
//! and left out; the rules in force stay, whichever of the two sources is wrong.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, error, info, warn};

use crate::cli::flags::Sources;
use crate::cli::run::{queue_options, rules};
use crate::config::{self, Config, Effective, FILE_MAX, PolicyValue};
use crate::file_watch::{Change, FileWatch};
use crate::policies::{Found, Policies};
use crate::queue::kind::QueueOptions;
use crate::redis::connection::Connector;
use crate::redis::startup::StartError;
use crate::runtime::{Control, Rules};
use crate::telemetry::status::Status;

/// Within which every host of a queue is to go by a policy that was set.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How often policies are looked up.
const LOOK_EVERY: Duration = Duration::from_millis(500);
// The rest is for the round trip, and for checking what was read.
const _: () = assert!(LOOK_EVERY.as_millis() * 2 <= SEEN_WITHIN.as_millis());

/// See the module.
pub(super) struct Keeper {
    sources: Sources,
    connector: Connector,
    /// None where nothing that policies may set means anything.
    policies: Option<Policies>,
    queue: Arc<str>,
    status: Status,
    /// What was read last, right or wrong.
    seen: Words,
    /// What holds.
    in_force: Words,
    effective: Vec<Effective>,
    rules: Rules,
    options: QueueOptions,
    /// Redis would not say yet whether what was read can be used.
    unsure: bool,
    /// What was said last about a policy or a file that is wrong, and about what cannot be read.
    told: Option<String>,
    unseen: Option<String>,
}

/// What the sources say.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Words {
    /// The text of the file; `None` = as it was at the start.
    file: Option<String>,
    policies: Vec<PolicyValue>,
}

/// Why words cannot be used.
enum Unfit {
    /// They are wrong.
    Wrong(String, Option<String>),
    /// Redis does not say for now.
    Unknown,
}

/// Words that can be used.
struct Fit {
    config: Config,
    options: QueueOptions,
    rules: Rules,
    effective: Vec<Effective>,
}

impl Keeper {
    /// Of a host with this configuration.
    pub(super) fn new(
        sources: Sources,
        config: &Config,
        options: &QueueOptions,
        connector: &Connector,
        status: &Status,
    ) -> Self {
        Self {
            effective: sources.collect(None, Vec::new()).effective(),
            sources,
            connector: connector.clone(),
            policies: match options {
                QueueOptions::Stream(_) | QueueOptions::List(_) => {
                    Some(Policies::new(connector.link("policies")))
                }
                QueueOptions::SimpleList(_) | QueueOptions::PubSub(_) => None,
            },
            queue: Arc::clone(config.queue.name()),
            status: status.clone(),
            seen: Words::default(),
            in_force: Words::default(),
            rules: rules(config, options),
            options: options.clone(),
            unsure: false,
            told: None,
            unseen: None,
        }
    }

    /// Look up the policies once, before anything is handled: the configuration with them, if there
    /// are any and they are right.
    pub(super) async fn begin(&mut self) -> Option<Config> {
        self.look().await;
        let ruled = self.settle().await;
        self.show();
        ruled
    }

    /// Follow both sources for as long as the host lives.
    pub(super) async fn run(mut self, control: mpsc::Sender<Control>) {
        // What the start has read is told once more: it may have changed since.
        let path = self.sources.file.clone();
        let mut file = path.map(|path| FileWatch::new(path, FILE_MAX));
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changed = async {
                match &mut file {
                    Some(file) => file.changed().await,
                    None => std::future::pending().await,
                }
            };
            let is_news = tokio::select! {
                change = changed => self.read(change),
                _ = looks.tick() => self.look().await,
            };
            if !is_news && !self.unsure {
                continue;
            }
            let is_ruled = self.settle().await.is_some();
            self.show();
            let rules = Box::new(self.rules.clone());
            if is_ruled && control.send(Control::Rules(rules)).await.is_err() {
                return;
            }
        }
    }

    /// Take in what became of the file. Whether that is news.
    fn read(&mut self, change: Change) -> bool {
        let told = match change {
            Change::Content(content) => match String::from_utf8(content) {
                Ok(text) => {
                    self.seen.file = Some(text);
                    return true;
                }
                Err(_) => "it is not UTF-8".to_owned(),
            },
            Change::Back => {
                info!("the configuration file can be read again, and is what it was");
                return false;
            }
            Change::Unreadable(reason) | Change::TooLarge(reason) => reason,
        };
        error!(
            reason = told,
            "the configuration file cannot be read: the rules stay as they are"
        );
        false
    }

    /// Take in the policies as they are now. Whether that is news.
    async fn look(&mut self) -> bool {
        let Some(policies) = &self.policies else {
            return false;
        };
        let found = match policies.of_queue(&self.queue).await {
            Ok(found) => found,
            Err(error) => {
                // A Redis that is away is told of by the loop.
                debug!(%error, "could not look up policies");
                if error.class() == crate::redis::Class::Configuration {
                    self.cannot_see(&error.to_string());
                }
                return false;
            }
        };
        match &found.unseen {
            Some(error) => self.cannot_see(&error.to_string()),
            None => self.unseen = None,
        }
        let policies = values(&found);
        let is_news = policies != self.seen.policies;
        self.seen.policies = policies;
        is_news
    }

    fn cannot_see(&mut self, why: &str) {
        if self.unseen.as_deref() != Some(why) {
            let hint = "grant the user `+hgetall` and the keys of policies: docs/policies.md";
            warn!(why, hint, "cannot see all policies");
            self.unseen = Some(why.to_owned());
        }
    }

    /// Use as much of what was seen as is right. The configuration, if other rules hold now.
    async fn settle(&mut self) -> Option<Config> {
        self.unsure = false;
        let mut tries = vec![self.seen.clone()];
        if self.seen.file != self.in_force.file && self.seen.policies != self.in_force.policies {
            tries.push(Words {
                policies: self.in_force.policies.clone(),
                ..self.seen.clone()
            });
            tries.push(Words {
                file: self.in_force.file.clone(),
                ..self.seen.clone()
            });
        }
        let mut wrong = None;
        for words in tries {
            if words == self.in_force {
                break;
            }
            match self.fit(&words).await {
                Ok(fit) => {
                    self.refuse(wrong);
                    return self.adopt(words, fit);
                }
                Err(Unfit::Unknown) => {
                    self.unsure = true;
                    return None;
                }
                Err(Unfit::Wrong(what, hint)) => wrong = wrong.or(Some((what, hint))),
            }
        }
        self.refuse(wrong);
        None
    }

    /// Whether these words can be used, and what they come to.
    async fn fit(&self, words: &Words) -> Result<Fit, Unfit> {
        let collected = self
            .sources
            .collect(words.file.as_deref(), words.policies.clone());
        let effective = collected.effective();
        let wrong = |error: &config::Error| {
            let hint = error.problems.first().and_then(|p| p.hint.clone());
            Unfit::Wrong(error.to_string(), hint)
        };
        let config = collected.config().map_err(|error| wrong(&error))?.value;
        let told = queue_options(&config);
        let rules = rules(&config, &told);
        let options = self.options.clone().with(rules.queue.clone());
        if rules.queue != self.rules.queue {
            match options.check(&self.connector).await {
                Ok(_) => {}
                Err(error) if error.may_pass() => return Err(Unfit::Unknown),
                // What stands in the way already is not for these words to mend.
                Err(error) if self.is_known(&error).await => {}
                Err(error) => return Err(Unfit::Wrong(error.to_string(), error.hint())),
            }
        }
        Ok(Fit {
            config,
            options,
            rules,
            effective,
        })
    }

    /// Whether the rules in force have the same fault.
    async fn is_known(&self, error: &StartError) -> bool {
        let known = self.options.check(&self.connector).await;
        known.is_err_and(|known| known.to_string() == error.to_string())
    }

    fn adopt(&mut self, words: Words, fit: Fit) -> Option<Config> {
        self.in_force = words;
        let before = std::mem::replace(&mut self.effective, fit.effective);
        self.tell(&before);
        self.options = fit.options;
        if self.rules == fit.rules {
            return None;
        }
        self.rules = fit.rules;
        Some(fit.config)
    }

    /// Say what is wrong, once.
    fn refuse(&mut self, wrong: Option<(String, Option<String>)>) {
        let Some((what, hint)) = wrong else {
            self.told = None;
            return;
        };
        if self.told.as_ref() != Some(&what) {
            error!(
                what,
                hint, "wrong rules are ignored: what was right before stays in force"
            );
        }
        self.told = Some(what);
    }

    /// Say what holds now, and what will hold after the next start only.
    fn tell(&self, before: &[Effective]) {
        let changes = before.iter().zip(&self.effective);
        let changed: Vec<&Effective> = changes
            .filter(|(old, new)| old.value != new.value)
            .map(|(_, new)| new)
            .collect();
        let said = |is_live: bool| {
            let such = changed.iter().filter(|e| e.is_live == is_live);
            let said = such.map(|e| {
                let value = e.value.as_deref().unwrap_or("-");
                format!("{}={value} ({})", e.key, e.source)
            });
            said.collect::<Vec<_>>().join(", ")
        };
        let held = said(true);
        if !held.is_empty() {
            info!(changed = held, "other rules hold");
        }
        let later = said(false);
        if !later.is_empty() {
            warn!(
                changed = later,
                "changed in the file, and held after the next start only"
            );
        }
    }

    /// For those who look at this host.
    fn show(&self) {
        let live = self.effective.iter().filter(|setting| setting.is_live);
        self.status.rules(live.map(|setting| {
            let value = setting.value.clone();
            (setting.key, value, setting.source.to_string())
        }));
        self.status.refused(self.told.clone());
    }
}

/// The policies that count for a queue, as settings.
pub(super) fn values(found: &Found) -> Vec<PolicyValue> {
    let value = |stored: &crate::policies::Stored| PolicyValue {
        key: stored.setting.clone(),
        text: stored.text.clone(),
        target: Arc::clone(stored.scope.text()),
    };
    found.effective().into_iter().map(value).collect()
}
