//! What hosts have found out about a version that is stored: each for itself, by what it has seen of
//! it. Nobody has to follow that; it says how a host begins that starts later.
//!
//! Each is one value with the digest of the version in front: after a Redis has lost its data, the
//! same number can be another version.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use crate::redis::error::{Error, bounded_to};
use crate::redis::reply;
use crate::rollout::store::{COMMAND, Store, Stored};
use crate::wire::keys;

/// A verdict goes with its version. One on a version that is gone already goes by itself.
const KEPT_FOR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Bytes of who found it out, and why.
const WORDS_MAX: usize = 512;
/// Bytes that are read back: those, and a digest.
const READ_MAX: usize = WORDS_MAX + 128;

/// What hosts have found out about one version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdicts {
    /// Which one has kept it after its trial, the last that did.
    pub kept: Option<String>,
    /// Which one has given it up, the last that did, and why.
    pub given_up: Option<String>,
}

impl Verdicts {
    /// Whether it did well wherever it was judged, and was judged at all.
    pub fn is_proven(&self) -> bool {
        self.kept.is_some() && self.given_up.is_none()
    }
}

impl Store {
    /// Record that a host has kept or given up this version: which host, and why, in words.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn judge(
        &self,
        number: u64,
        digest: &str,
        is_kept: bool,
        words: &str,
    ) -> Result<(), Error> {
        let words = bounded_to(words, WORDS_MAX);
        let mut cmd = Cmd::new();
        cmd.arg("SET")
            .arg(self.verdict(number, is_kept))
            .arg(format!("{digest} {words}"))
            .arg("PX")
            .arg(KEPT_FOR.as_millis().to_string());
        self.link.call(COMMAND, &cmd).await.map(drop)
    }

    /// What was found out about each of these versions.
    ///
    /// # Errors
    /// What Redis refuses.
    pub async fn verdicts(&self, stored: &[Stored]) -> Result<Vec<Verdicts>, Error> {
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::new();
        for stored in stored {
            for is_kept in [true, false] {
                pipeline
                    .cmd("GETRANGE")
                    .arg(self.verdict(stored.number, is_kept))
                    .arg(0)
                    .arg(READ_MAX - 1);
            }
        }
        let found = self.link.pipeline(COMMAND, &pipeline).await?;
        let mut found = found.into_iter();
        let mut next = |stored: &Stored| {
            let value = reply::accepted(COMMAND, found.next().unwrap_or(Value::Nil))?;
            Ok::<_, Error>(match value {
                Value::Nil => None,
                value => about(&reply::text(COMMAND, value)?, &stored.digest),
            })
        };
        let verdicts = stored.iter().map(|stored| {
            Ok(Verdicts {
                kept: next(stored)?,
                given_up: next(stored)?,
            })
        });
        verdicts.collect()
    }

    fn verdict(&self, number: u64, is_kept: bool) -> String {
        let word = if is_kept { "kept" } else { "given-up" };
        keys::version(&self.key, &format!("{number}:{word}"))
    }
}

/// The words of a verdict on the version with this digest.
fn about(text: &str, digest: &str) -> Option<String> {
    let (of, words) = text.split_once(' ')?;
    (of == digest).then(|| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_about_one_version_whatever_its_number() {
        assert_eq!(
            about("sha256:00 a: b", "sha256:00").as_deref(),
            Some("a: b")
        );
        for other in ["", "sha256:00", "sha256:01 a: b", "sha256:000 a"] {
            assert_eq!(about(other, "sha256:00"), None, "{other}");
        }
    }

    #[test]
    fn one_host_that_gave_it_up_is_enough() {
        let said = |word: bool| word.then(|| "host".to_owned());
        for (kept, given_up, proven) in [
            (true, false, true),
            (true, true, false),
            (false, true, false),
            (false, false, false),
        ] {
            let verdicts = Verdicts {
                kept: said(kept),
                given_up: said(given_up),
            };
            assert_eq!(verdicts.is_proven(), proven, "{verdicts:?}");
        }
    }
}
