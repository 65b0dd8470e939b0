//! The nodes of a cluster, as far as a node names them: whoever has no key any more says who has it
//! (`MOVED`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{Cmd, Value};

use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::script::{self, Script};

/// The most nodes to which connections are kept, beside the one of the configuration.
const NODES_MAX: usize = 64;
/// How often one request follows a node that names another one.
const FOLLOWED_MAX: usize = 3;

/// Connections to the node of the configuration, and to those that were named since.
#[derive(Debug)]
pub(crate) struct Nodes {
    connector: Connector,
    purpose: &'static str,
    own: Link,
    others: Mutex<BTreeMap<String, Arc<Link>>>,
}

impl Nodes {
    pub(crate) fn new(connector: &Connector, purpose: &'static str) -> Self {
        Self {
            connector: connector.clone(),
            purpose,
            own: connector.link(purpose),
            others: Mutex::default(),
        }
    }

    /// The node of the configuration.
    pub(crate) fn own(&self) -> &Link {
        &self.own
    }

    /// Ask the node that has a key. `at` is the one that had it last: `None` = that of the configuration.
    ///
    /// # Errors
    /// As [`Link::call`]. If the node cannot be reached, forget it: the node of the configuration knows who
    /// took its place.
    pub(crate) async fn call(
        &self,
        at: &mut Option<String>,
        command: &'static str,
        cmd: &Cmd,
    ) -> Result<Value, Error> {
        self.ask(at, None, command, cmd).await
    }

    /// The same with a call of a script.
    ///
    /// # Errors
    /// As [`Nodes::call`].
    pub(crate) async fn run(
        &self,
        at: &mut Option<String>,
        script: Script,
        call: &Cmd,
    ) -> Result<Value, Error> {
        self.ask(at, Some(script), script.name(), call).await
    }

    async fn ask(
        &self,
        at: &mut Option<String>,
        script: Option<Script>,
        command: &'static str,
        cmd: &Cmd,
    ) -> Result<Value, Error> {
        let mut followed = 0;
        loop {
            let other = at.as_deref().and_then(|node| self.other(node));
            let link = other.as_deref().unwrap_or(&self.own);
            let answer = match script {
                Some(script) => script::run(link, script, cmd).await,
                None => link.call(command, cmd).await,
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match error.moved_to() {
                Some(node) if followed < FOLLOWED_MAX && self.other(node).is_some() => {
                    *at = Some(node.to_owned());
                    followed += 1;
                }
                _ => return Err(error),
            }
        }
    }

    /// A connection to the node at this address.
    fn other(&self, node: &str) -> Option<Arc<Link>> {
        // Whole entries: a panic elsewhere leaves none half-written.
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = others.get(node) {
            return Some(Arc::clone(link));
        }
        let link = Arc::new(self.connector.at(node)?.link(self.purpose));
        if others.len() >= NODES_MAX {
            // Most of them are gone: a cluster has fewer. Those in use are opened again.
            others.clear();
        }
        others.insert(node.to_owned(), Arc::clone(&link));
        Some(link)
    }
}
