//! A queue at work, to look at: `hostler demo`. Orders come in, a handler with a mistake handles them, some die, and the
//! corrected version cures them.
//!
//! | file | what it does |
//! |---|---|
//! | `billing.wat` | the handler. `billing.wasm` is what it compiles to: a test compares them |
//! | `project.toml` | the queue, as the `hostler.toml` of the demo's folder has it |
//! | [`folder`] | the folder: that file, the two versions of the handler, the private server |
//! | [`orders`] | the producer |
//! | [`story`] | the steps: each waits for what it shows |
//! | [`terminal`] | the commands of the steps: those that a user would type |
//!
//! The host of the demo is part of its process, and the private server ends with its last user: a demo that is killed leaves
//! its folder behind, and no process. On the server of a user it takes keys that are not there, and removes them.

mod folder;
mod orders;
mod story;
mod terminal;

use std::ffi::OsString;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::config::{Config, Redis, RedisUrl, Server, Sources};
use crate::host::{Begin, Beginning, Connected, Ended, StopSignals, component, retry, serve_with};
use crate::redis::connection::Link;
use crate::redis::{Error as RedisError, usage};
use crate::registry;
use crate::runtime::sandboxed::Sandboxed;
use crate::wire::keys;
use crate::workbench::Error;

use folder::Folder;
use story::Story;
use terminal::Terminal;

/// The queue. `project.toml` names it, too.
const QUEUE: &str = "demo-orders";
/// Its dead letters.
const DEAD: &str = "demo-orders:dead";
/// The private server has its data here, in the folder. Commands do not take it for the server of a project.
const SERVER_DIR: &str = "server";
/// How often the keys are removed: what the host sent last may arrive later.
const REMOVALS: u32 = 2;
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

/// Something to show to the user.
#[derive(Debug)]
pub enum Event<'a> {
    /// What happens.
    Said(&'a str),
    /// A command that ran.
    Ran {
        /// As a user would type it in the folder of the demo.
        line: &'a str,
        /// What it printed.
        output: &'a str,
    },
}

/// Shows events.
pub type Show<'a> = &'a dyn Fn(Event<'_>);

/// How it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A person reads it: there are pauses between the steps.
    pub is_read: bool,
    /// It ends when everything is shown.
    pub once: bool,
}

/// The variables of this environment that hold in a demo: of hostler's, only those that say how to reach the server of a user.
pub fn variables(mut all: Vec<(OsString, OsString)>, is_given: bool) -> Vec<(OsString, OsString)> {
    all.retain(|(name, _)| {
        let name = name.to_string_lossy();
        !name.starts_with("HOSTLER_") || (is_given && name.starts_with("HOSTLER_REDIS_"))
    });
    all
}

/// A demo whose folder and server are ready.
pub struct Demo {
    folder: Folder,
    redis: Redis,
    /// The server of the user.
    given: Option<RedisUrl>,
    variables: Vec<(OsString, OsString)>,
}

impl Demo {
    /// Make the folder, and start the private server there or reach the one that the user has given. `redis` is how to reach
    /// it. `variables` are the environment of the commands ([`variables`]). The dashboard gets this port; 0 = any free one.
    ///
    /// # Errors
    /// The folder cannot be made, the server does not start or answer, or it has keys of a demo: nothing is changed then.
    pub async fn prepare(
        mut redis: Redis,
        given: Option<RedisUrl>,
        variables: Vec<(OsString, OsString)>,
        port: u16,
    ) -> Result<(Self, Connected), Error> {
        let folder = Folder::make()?;
        if let Server::Embedded(data) = &mut redis.server {
            *data = folder.path().join(SERVER_DIR);
        }
        let connected = Connected::new(&redis, "demo").await?;
        let link = connected.connector.link("demo");
        retry(redis.wait, async || link.reach().await).await?;
        if given.is_some() {
            refuse_if_used(&link).await?;
        }
        // Commands that a user types there are no users of the private server: it ends with the demo.
        folder.write_project(&connected.connector.target().url(), port)?;
        let demo = Self {
            folder,
            redis,
            given,
            variables,
        };
        Ok((demo, connected))
    }

    /// The settings of its host.
    pub fn sources(&self) -> Sources {
        let url = self.given.as_ref().map(|url| ("redis", url.expose()));
        let quiet = [("log.level", "error"), ("log.format", "pretty")];
        let flags = quiet.into_iter().chain(url);
        Sources {
            file: Some(self.folder.config()),
            is_beside: false,
            text: None,
            variables: self.variables.clone(),
            flags: flags.map(|(key, text)| (key, text.to_owned())).collect(),
        }
    }

    /// Serve the queue, send orders, and go through the steps; then go on until a signal, unless it shows them once.
    ///
    /// # Errors
    /// The queue cannot be served, Redis fails, or a step fails.
    pub async fn run(
        &self,
        connected: Connected,
        (config, sources): (Config, Sources),
        mut stops: StopSignals,
        attempts: &Handle,
        pace: Pace,
        show: Show<'_>,
    ) -> Result<Ended, Error> {
        let connector = &connected.connector;
        let served = async {
            let loading = config.clone();
            let loading = attempts.spawn_blocking(move || component::load_handler(&loading));
            let handler = tokio::select! {
                loaded = loading => loaded.map_err(Error::bug)??,
                _ = stops.next() => return Ok::<_, Error>(Ended::Done),
            };
            let (begun, begins) = oneshot::channel();
            let begin = Begin {
                handler,
                builds: None,
                wrap: |handler: Sandboxed, beginning: &Beginning<'_>| {
                    // Where the story has ended, nobody waits for it.
                    let _unheard = begun.send(beginning.admin).is_err();
                    handler
                },
            };
            let serving = serve_with(config, sources, stops, attempts, None, begin);
            let url = match &self.given {
                Some(url) => url.expose().to_owned(),
                None => connector.target().url(),
            };
            let terminal = Terminal {
                folder: self.folder.path(),
                url,
                variables: &self.variables,
                show,
            };
            let story = Story {
                terminal,
                connector,
                token: self.folder.token(),
                pace,
            };
            tokio::select! {
                served = Box::pin(serving) => Ok(served?.ended),
                // What the host holds goes with its server, or with its keys.
                told = Box::pin(story.tell(begins)) => told.map(|()| Ended::Done),
            }
        };
        let ended = Box::pin(served).await;
        connected.close().await;
        ended
    }

    /// Remove its keys from the server of the user. Call it when the threads of the host have ended: they write until then.
    ///
    /// # Errors
    /// Redis fails.
    pub async fn remove_keys(&self) -> Result<(), Error> {
        if self.given.is_none() {
            return Ok(());
        }
        let connected = Connected::new(&self.redis, "demo").await?;
        let link = connected.connector.link("demo");
        // Dies here: the keys stay, and the next demo refuses to begin and names them.
        for _ in 0..REMOVALS {
            for key in used(&link).await? {
                usage::remove(&link, &[key]).await?;
            }
            registry::forget(&link, QUEUE).await?;
            sleep(REMOVAL_PAUSE).await;
        }
        connected.close().await;
        Ok(())
    }
}

/// The keys of a demo on this server.
async fn used(link: &Link) -> Result<Vec<String>, RedisError> {
    let mut found = usage::existing(link, &[QUEUE, DEAD]).await?;
    found.extend(usage::beginning_with(link, &keys::derived(QUEUE, "")).await?);
    Ok(found)
}

async fn refuse_if_used(link: &Link) -> Result<(), Error> {
    let mut found = used(link).await?;
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    let what = format!("this server has keys of a demo: {}", found.join(", "));
    let hint = "end the other demo; if none runs, it was killed: remove these keys (UNLINK)";
    Err(Error::usage_with(what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_the_users_server_reach_a_demo() {
        let names = [
            "PATH",
            "HOSTLER_STREAM",
            "HOSTLER_REDIS",
            "HOSTLER_REDIS_PASSWORD",
        ];
        let all = names.map(|name| (OsString::from(name), OsString::new()));
        let holding = |is_given| {
            let holding = variables(all.to_vec(), is_given).into_iter();
            holding.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(holding(false), ["PATH"]);
        assert_eq!(holding(true), ["PATH", "HOSTLER_REDIS_PASSWORD"]);
    }
}
