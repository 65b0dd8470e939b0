//! Cancelling values of a list, and messages that were published for later.

use std::collections::BTreeMap;

use hostler_core::wire::keys;
use hostler_redis::script::PER_CALL;

use super::scan::{Found, Place};
use super::{CancelError, Cancelled, Canceller, Kind, NOTE_MS, NOTES_MAX, Verdict, refusal, words};
use crate::scripts;

impl Canceller {
    /// Cancel what stands in lists or among the delayed messages. One that is not there any more is left out.
    ///
    /// Dies here, or its answer is lost: the script has cancelled its messages, or has not. The next look shows which.
    pub(super) async fn values(&self, found: &[&Found]) -> Result<Vec<Cancelled>, CancelError> {
        // Those of one key go together.
        let mut by_key: BTreeMap<(String, &'static str, &str), Vec<&Found>> = BTreeMap::new();
        for &one in found {
            let at = match &one.place {
                Place::Delayed(_) => (keys::delayed(&self.key), "delayed", ""),
                Place::Value(key, _) => (key.clone(), "list", ""),
                Place::Held(host, _) => (keys::processing(&self.key, host), "held", host.as_str()),
                Place::Entry(_) => continue,
            };
            by_key.entry(at).or_default().push(one);
        }
        let mut done = Vec::new();
        for ((key, mode, host), all) in by_key {
            if let (Kind::Stream, Some(group)) = (self.kind, &self.group) {
                let why = format!(
                    "it is not in the stream yet: cancel it in all groups, not in `{group}`"
                );
                done.extend(
                    all.iter()
                        .map(|f| self.about(&f.id, Verdict::Refused(why.clone()))),
                );
                continue;
            }
            for some in all.chunks(PER_CALL) {
                self.at(&key, (mode, host), some, &mut done).await?;
            }
        }
        Ok(done)
    }

    async fn at(
        &self,
        key: &str,
        (mode, host): (&str, &str),
        found: &[&Found],
        done: &mut Vec<Cancelled>,
    ) -> Result<(), CancelError> {
        let own = [
            keys::cancelled(&self.key, ""),
            keys::written(&self.key, ""),
            keys::started(&self.key, host),
        ];
        let mut all = vec![key];
        all.extend(own.iter().map(String::as_str));
        let mut places = [0, 0];
        let recovery = self.recovery.as_deref().filter(|_| mode == "held");
        let kept = self.kept.as_ref().map(|to| &*to.key);
        for (place, key) in places.iter_mut().zip([recovery, kept]) {
            if let Some(key) = key {
                all.push(key);
                *place = all.len();
            }
        }
        let script = &scripts::CANCEL_VALUE;
        let mut call = script.on(&all);
        call.arg(mode).arg(host).arg(&places);
        self.bound(&mut call);
        call.arg(NOTE_MS).arg(NOTES_MAX);
        call.arg(match self.kind {
            Kind::List { reliable: true } => keys::journals(&self.key, ""),
            _ => String::new(),
        });
        let mut asked = Vec::new();
        for &one in found {
            let attempts = one.headers.retry_count();
            match self.left(one, None, attempts) {
                Ok([answer, copy]) => {
                    let (entry, _) = one.place.value();
                    call.arg(&entry[..])
                        .arg(one.journal())
                        .arg(&answer[..])
                        .arg(&copy[..]);
                    asked.push(one);
                }
                Err(error) => done.push(self.about(&one.id, Verdict::Refused(error.to_string()))),
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let answer = self.link.run(script, &call).await?;
        for (one, word) in asked.into_iter().zip(words(script.name(), answer)?) {
            let verdict = match word.as_str() {
                "cancelled" => Verdict::Cancelled,
                "running" => Verdict::Void(host.to_owned()),
                "late" => Verdict::TooLate,
                "moved" => continue,
                word => refusal(word),
            };
            done.push(self.about(&one.id, verdict));
        }
        Ok(())
    }
}
