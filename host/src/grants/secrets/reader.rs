//! Secrets: read when they are used, and again when their file has changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::provider::Provider;
use super::rules::{SecretRule, SecretSource};
use crate::grants::context::Origin;
use crate::grants::denials::Denials;
use crate::redis::target::Secret;

/// A file is read at most this often.
const FRESH: Duration = Duration::from_millis(250);
/// The largest secret.
const MAX: u64 = 64 << 10;
/// A file that is being written in place is read until two reads agree: this number of times, with this pause.
const AGREE_MAX: usize = 10;
const AGREE_PAUSE: Duration = Duration::from_millis(5);

/// All secrets, by name.
#[derive(Debug)]
pub(in crate::grants) struct Secrets {
    entries: BTreeMap<String, Entry>,
    denials: Arc<Denials>,
}

#[derive(Debug)]
struct Entry {
    rule: SecretRule,
    /// The last value of a file, and when it was read.
    last: Arc<Mutex<Option<(Instant, Secret)>>>,
}

/// Why a secret cannot be used. The texts are for a guest: they name no path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(in crate::grants) enum SecretError {
    #[error("the secret `{0}` is not granted")]
    NotGranted(String),
    #[error("the secret `{0}` cannot be read now")]
    Unreadable(String),
}

impl Secrets {
    pub(in crate::grants) fn new(rules: &[SecretRule], denials: &Arc<Denials>) -> Self {
        let entry = |rule: &SecretRule| Entry {
            rule: rule.clone(),
            last: Arc::default(),
        };
        let entries = rules.iter().map(|rule| (rule.name.clone(), entry(rule)));
        Self {
            entries: entries.collect(),
            denials: Arc::clone(denials),
        }
    }

    /// The value that a guest may read.
    async fn exposed(&self, name: &str) -> Result<Secret, SecretError> {
        match self.entries.get(name) {
            Some(entry) if entry.rule.expose => entry.read().await,
            _ => Err(SecretError::NotGranted(shown(name))),
        }
    }

    /// The values of all that can be read.
    pub(in crate::grants) async fn values(&self) -> Vec<Secret> {
        let all = self.all().await.into_iter();
        all.map(|(_, value)| value).collect()
    }

    /// The value, for the host.
    pub(in crate::grants) async fn get(&self, name: &str) -> Result<Secret, SecretError> {
        match self.entries.get(name) {
            Some(entry) => entry.read().await,
            None => Err(SecretError::NotGranted(shown(name))),
        }
    }
}

#[async_trait]
impl Provider for Secrets {
    fn exposes(&self) -> bool {
        self.entries.values().any(|entry| entry.rule.expose)
    }

    fn check(&self) -> Vec<String> {
        let problem = |(name, entry): (&String, &Entry)| match &entry.rule.source {
            SecretSource::File(path) => {
                let error = load(path).err()?;
                Some(format!(
                    "the secret `{name}`: cannot read {}: {error}",
                    path.display()
                ))
            }
            SecretSource::Variable(_, Some(_)) => None,
            SecretSource::Variable(variable, None) => Some(format!(
                "the secret `{name}`: the variable {variable} is not set"
            )),
        };
        self.entries.iter().filter_map(problem).collect()
    }

    async fn all(&self) -> Vec<(String, Secret)> {
        let mut all = Vec::with_capacity(self.entries.len());
        for (name, entry) in &self.entries {
            all.extend(entry.read().await.ok().map(|value| (name.clone(), value)));
        }
        all
    }

    async fn secret(&self, origin: &Origin, name: &str) -> Result<String, String> {
        let value = self.exposed(name).await;
        value
            .map(|value| value.reveal().to_owned())
            .map_err(|error| {
                let why = error.to_string();
                let rule = "`expose = true` in `[grant.secret]`";
                self.denials.log(origin, "a secret", &why, rule);
                why
            })
    }
}

/// A name that a guest has chosen.
fn shown(name: &str) -> String {
    crate::delivery::text::printable(crate::delivery::text::truncated(name, 64))
}

impl Entry {
    async fn read(&self) -> Result<Secret, SecretError> {
        let name = &self.rule.name;
        let unreadable = || SecretError::Unreadable(name.clone());
        let path = match &self.rule.source {
            SecretSource::Variable(_, value) => return value.clone().ok_or_else(unreadable),
            SecretSource::File(path) => path,
        };
        // One reader at a time: the others then find its value.
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, value)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(value.clone());
        }
        let (name, path) = (name.clone(), path.clone());
        // On a thread of its own: the file system may hang. The lock goes with it, so there is one such thread
        // until it ends, although its caller may have gone.
        let reading = spawn_blocking(move || {
            let known = last.as_ref().map(|(_, value)| value.clone());
            let value = match settled(&path, known.clone()) {
                Ok(value) => value,
                Err(error) => {
                    warn!(secret = name, path = %path.display(), %error, "cannot read a secret again");
                    known?
                }
            };
            *last = Some((Instant::now(), value.clone()));
            Some(value)
        });
        reading.await.ok().flatten().ok_or_else(unreadable)
    }
}

/// The value that two reads agree on, the last one included.
fn settled(path: &Path, mut last: Option<Secret>) -> io::Result<Secret> {
    for _ in 0..AGREE_MAX {
        let value = load(path)?;
        if last.as_ref() == Some(&value) {
            return Ok(value);
        }
        last = Some(value);
        sleep(AGREE_PAUSE);
    }
    Err(io::Error::other("it keeps changing"))
}

fn load(path: &Path) -> io::Result<Secret> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX + 1).read_to_string(&mut text)?;
    if read as u64 > MAX {
        return Err(io::Error::other(format!("it is larger than {MAX} bytes")));
    }
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn secrets(source: SecretSource, expose: bool) -> Secrets {
        let rule = SecretRule {
            name: "stripe".to_owned(),
            source,
            expose,
        };
        Secrets::new(&[rule], &Arc::default())
    }

    #[tokio::test]
    async fn a_secret_is_read_again_when_its_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stripe");
        std::fs::write(&path, "one\n").unwrap();
        let secrets = secrets(SecretSource::File(path.clone()), true);
        assert!(secrets.check().is_empty());
        assert_eq!(secrets.get("stripe").await.unwrap().reveal(), "one");
        let other = dir.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while secrets.get("stripe").await.unwrap().reveal() != "two" {
            assert!(Instant::now() < deadline, "the new value is never read");
            sleep(Duration::from_millis(20)).await;
        }
        // A file that is missing for a moment does not take the value away.
        std::fs::remove_file(&path).unwrap();
        sleep(FRESH).await;
        assert_eq!(secrets.get("stripe").await.unwrap().reveal(), "two");
        assert!(
            secrets.check()[0].contains("cannot read"),
            "{:?}",
            secrets.check()
        );
    }

    #[tokio::test]
    async fn only_exposed_secrets_can_be_read() {
        let source = || SecretSource::Variable("STRIPE".to_owned(), Some(Secret::new("s3cr3t")));
        let hidden = secrets(source(), false);
        assert!(!hidden.exposes());
        let not_granted = SecretError::NotGranted("stripe".to_owned());
        assert_eq!(hidden.exposed("stripe").await, Err(not_granted));
        assert_eq!(hidden.get("stripe").await.unwrap().reveal(), "s3cr3t");
        let exposed = secrets(source(), true);
        assert!(exposed.exposes());
        assert_eq!(exposed.exposed("stripe").await.unwrap().reveal(), "s3cr3t");
        assert!(exposed.exposed("other").await.is_err());
        assert!(!format!("{exposed:?} {:?}", source()).contains("s3cr3t"));
        let unset = secrets(SecretSource::Variable("STRIPE".to_owned(), None), true);
        assert!(unset.check()[0].contains("STRIPE is not set"));
    }
}
