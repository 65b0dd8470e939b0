//! What the page can do. The guard has checked the token; the page has asked a person, who has typed the name
//! of what is concerned. Each action is logged.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tracing::warn;

use super::Ui;
use super::api::{Error, find};
use crate::config::settings::paused_key;
use crate::dead_letter::{DeadLetters, Filter, ReplayOptions};
use crate::delivery::text::truncated;
use crate::policies::{Policies, Scope};
use crate::policy_change;
use crate::registry::cancel::{Verdict, canceller};
use crate::rollout::store::{ChangeResult, Store};
use crate::schedule::{self, Changed};

/// The author of versions that are requested here.
const AUTHOR: &str = "dashboard";
/// The most bytes of a text in the log.
const LOGGED_MAX: usize = 256;

/// The body of an action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// The queue, or the key of the dead letters.
    on: String,
    /// What the person has typed: it must be the same.
    confirm: String,
    /// Only dead letters with this id; or the message to cancel.
    id: Option<String>,
    /// Only in this consumer group.
    group: Option<String>,
    /// Only dead letters of this reason.
    reason: Option<String>,
    /// Only dead letters of this cause.
    signature: Option<String>,
    /// The setting of a policy.
    setting: Option<String>,
    /// Its value; without one the setting is removed.
    value: Option<String>,
    /// The name of a schedule.
    schedule: Option<String>,
    /// The name of the handler to try.
    handler: Option<String>,
}

pub(super) async fn act(
    State(ui): State<Ui>,
    Path(action): Path<String>,
    Json(asked): Json<Asked>,
) -> Result<Response, Error> {
    if asked.confirm != asked.on {
        let what = "it is not confirmed: type the name of what is concerned";
        return Err(Error::Wrong(what.to_owned()));
    }
    let done = perform(&ui, &action, &asked).await;
    let [on, action] = [&asked.on, &action].map(|text| truncated(text, LOGGED_MAX));
    let dead_letters = [&asked.id, &asked.reason, &asked.signature].into_iter();
    let of = dead_letters
        .chain([&asked.setting, &asked.schedule, &asked.handler])
        .flatten();
    let of: Vec<&str> = of.map(|t| truncated(t, LOGGED_MAX)).collect();
    let of = of.join(" ");
    match &done {
        // A warning, so that it is logged at every usual level.
        Ok(result) => warn!(target: "audit", action, on, of, %result, "the dashboard was used"),
        Err(error) => {
            warn!(target: "audit", action, on, of, %error, "the dashboard was used in vain")
        }
    }
    Ok(Json(done?).into_response())
}

async fn perform(ui: &Ui, action: &str, asked: &Asked) -> Result<serde_json::Value, Error> {
    let queue = &*asked.on;
    let letters = DeadLetters::new(&ui.0.connector, queue);
    let store = || Store::new(ui.0.connector.link("ui"), queue);
    let token = format!("{:032x}", fastrand::u128(..));
    match action {
        "replay" => {
            let options = ReplayOptions::default();
            Ok(json!(letters.replay_all(filter(asked), options).await?))
        }
        "purge" => {
            let purged = letters.purge_all(filter(asked)).await?;
            Ok(json!({ "purged": purged }))
        }
        // The guard has let it pass: the token is right.
        "sign-in" => Ok(json!({})),
        "try" => try_one(ui, asked).await,
        "cancel" => cancel(ui, asked).await,
        "pause" => policy(ui, queue, paused_key(), Some("true")).await,
        "resume" => policy(ui, queue, paused_key(), None).await,
        "policy" => {
            let setting = asked.setting.as_deref().unwrap_or_default();
            policy(ui, queue, setting, asked.value.as_deref()).await
        }
        "schedule-run" | "schedule-pause" | "schedule-resume" => {
            scheduled(ui, action, asked, &token).await
        }
        "promote" => requested(store().promote(&token, AUTHOR).await?),
        "rollback" => requested(store().roll_back(&token, AUTHOR, None).await?),
        _ => Err(Error::Missing(format!("there is no action `{action}`"))),
    }
}

/// Cancel a message of a queue.
async fn cancel(ui: &Ui, asked: &Asked) -> Result<serde_json::Value, Error> {
    let id = asked.id.as_deref().filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| Error::Wrong("`id` is missing".to_owned()))?;
    let group = asked.group.as_deref().filter(|group| !group.is_empty());
    let queue = find(ui, &asked.on, group).await?;
    let canceller = canceller(&ui.0.connector, &queue, group).await?;
    let done = canceller.cancel(id).await?;
    let answers = done.iter().map(|done| match &done.verdict {
        Verdict::Refused(why) => why.clone(),
        verdict => verdict.label().to_owned(),
    });
    Ok(json!({ "cancel": answers.collect::<Vec<_>>().join(", ") }))
}

/// Run one of the handlers on one dead letter. Nothing is written.
async fn try_one(ui: &Ui, asked: &Asked) -> Result<serde_json::Value, Error> {
    let wrong = |what: &str| Error::Wrong(what.to_owned());
    let trials = ui.0.trials.as_ref();
    let trials = trials.ok_or_else(|| wrong("no handler was named: start it with `--try FILE`"))?;
    let wanted = asked.handler.as_deref().unwrap_or_default();
    let mut candidates = trials.candidates.iter();
    let found = candidates.find(|(name, _)| name == wanted);
    let (_, candidate) = found.ok_or_else(|| wrong("no handler of this name can be tried"))?;
    let id = asked.id.as_deref();
    let id = id.ok_or_else(|| wrong("`id` is missing"))?;
    let letters = DeadLetters::new(&ui.0.connector, &asked.on).reading(trials.reading.clone());
    let entry = letters.find(id).await?;
    let entry = entry.ok_or_else(|| Error::Missing(format!("`{}` has no entry {id}", asked.on)))?;
    let _turn = ui.0.turn.acquire().await.map_err(|_| wrong("it ends"))?;
    let call = candidate.call(&letters, &entry, None);
    let verdict = trials.attempts.spawn(call).await;
    let verdict = verdict.map_err(|error| Error::Wrong(error.to_string()))?;
    Ok(json!({
        "verdict": verdict.word,
        "fault": verdict.fault,
        "detail": verdict.detail,
        "duration_us": verdict.duration.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        "log": verdict.lines().collect::<Vec<_>>(),
        "handler": &**candidate.digest(),
    }))
}

/// Run, pause or resume a schedule.
async fn scheduled(
    ui: &Ui,
    action: &str,
    asked: &Asked,
    token: &str,
) -> Result<serde_json::Value, Error> {
    let link = ui.0.connector.link("ui").of(&asked.on);
    let store = schedule::Store::new(Arc::new(link), &asked.on);
    let name = asked.schedule.as_deref().unwrap_or_default();
    let changed = match action {
        "schedule-run" => match store.run(name, token).await? {
            Some(_) => Changed::Done,
            None => Changed::Unknown,
        },
        "schedule-pause" => store.pause(name).await?,
        _ => store.resume(name).await?,
    };
    match changed {
        Changed::Done => Ok(json!({ "schedule": name })),
        Changed::Unknown => Err(Error::Missing("the queue has no such schedule".to_owned())),
        Changed::Again => Err(Error::Wrong("it has just changed: try again".to_owned())),
    }
}

fn filter(asked: &Asked) -> Filter {
    let list = |text: &Option<String>| text.clone().into_iter().collect();
    Filter {
        ids: list(&asked.id),
        reasons: list(&asked.reason),
        signatures: list(&asked.signature),
        ..Filter::default()
    }
}

/// Set a rule of a queue, or remove it. A wrong one is refused, as by `hostler policy`.
async fn policy(
    ui: &Ui,
    queue: &str,
    setting: &str,
    value: Option<&str>,
) -> Result<serde_json::Value, Error> {
    let policies = Policies::new(ui.0.connector.link("policies"));
    let scope = Scope::Queue(queue.into());
    let Some(value) = value else {
        policies.unset(&scope, &[setting]).await?;
        return Ok(json!({ "unset": setting }));
    };
    let wanted = [(setting.to_owned(), value.to_owned())];
    policy_change::set(&policies, &scope, wanted.into()).await?;
    Ok(json!({ "set": setting }))
}

fn requested(result: ChangeResult) -> Result<serde_json::Value, Error> {
    let wrong = match result {
        ChangeResult::Requested(version) => return Ok(json!({ "version": version })),
        ChangeResult::NothingDeployed => "nothing was ever deployed to this queue",
        ChangeResult::Missing => "that version is not stored",
    };
    Err(Error::Wrong(wrong.to_owned()))
}
