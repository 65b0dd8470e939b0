//! Sends the requests that a rule allows.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use http::{Method, Response};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::adaptive::Destinations;
use super::journaled;
use super::pool::{Allowed, Pool, headers};
use super::provider::{Body, HttpError, HttpRequest, Provider};
use super::rules::{AddsKey, HttpRule, changes_something};
use super::stand_in::Answering;
use super::target::{Scheme, Target};
use crate::delivery::text::{printable, truncated};
use crate::grants::context::Origin;
use crate::grants::denials::Denials;
use crate::grants::network::names::{NOT_ALLOWED, of_a_rule};
use crate::grants::secrets::reader::Secrets;
use crate::redis::names::Names;
use crate::telemetry::rules::{RequestEnd, RuleCounts};
use crate::tls;

/// The longest method.
const METHOD_MAX: usize = 32;
/// The bytes of a segment of a path that an error shows.
const SEGMENT_MAX: usize = 64;

/// The rules, and their connections.
pub(in crate::grants) struct Client {
    pub(in crate::grants) rules: Vec<HttpRule>,
    /// The consumer group of the queue, if it has one.
    pub(in crate::grants) group: Option<String>,
    pub(in crate::grants) names: Names,
    /// The number of rules that ask for names, those for sockets included.
    pub(in crate::grants) rules_of_all: usize,
    /// Answers instead of every server.
    pub(in crate::grants) answering: Option<Answering>,
    /// The connections of each rule.
    pub(in crate::grants) pools: Vec<OnceLock<Arc<Pool>>>,
    /// The destinations of each rule with `adaptive`.
    pub(in crate::grants) destinations: Vec<Option<Arc<Destinations>>>,
    /// TLS with the certificates of the system, for all rules without their own.
    pub(in crate::grants) system_tls: OnceLock<TlsConnector>,
    pub(in crate::grants) secrets: Arc<Secrets>,
    pub(in crate::grants) counts: Arc<RuleCounts>,
    pub(in crate::grants) denials: Arc<Denials>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Client {
    fn pool(&self, index: usize) -> Result<&Arc<Pool>, String> {
        let place = &self.pools[index];
        if let Some(pool) = place.get() {
            return Ok(pool);
        }
        let rule = &self.rules[index];
        let tls = match (rule.scheme, &rule.ca) {
            _ if self.answering.is_some() => None,
            (Scheme::Http, _) => None,
            (Scheme::Https, Some(ca)) => Some(tls::connector(Some(ca))?),
            (Scheme::Https, None) => Some(match self.system_tls.get() {
                Some(tls) => tls.clone(),
                None => {
                    let tls = tls::connector(None)?;
                    self.system_tls.get_or_init(|| tls).clone()
                }
            }),
        };
        let pool = Pool::new(
            rule.clone(),
            index,
            &self.counts,
            tls,
            of_a_rule(&self.names, self.rules_of_all),
            self.answering.as_ref(),
            self.destinations[index].clone(),
        );
        Ok(place.get_or_init(|| pool))
    }
}

/// The rule that would allow a request, as an item of `grant.http = [...]`.
fn suggestion(method: &Method, target: &Target) -> String {
    let mut rule = String::from("[[grant.http]] with ");
    if target.scheme == Scheme::Http {
        rule.push_str("scheme = \"http\", ");
    }
    rule.push_str(&format!("host = \"{}\", ", target.host));
    if target.port != target.scheme.port() {
        rule.push_str(&format!("port = {}, ", target.port));
    }
    rule.push_str(&format!("methods = [\"{method}\"]"));
    rule
}

#[async_trait]
impl Provider for Client {
    fn check(&self) -> Vec<String> {
        let problem = |(index, rule): (usize, &HttpRule)| {
            let why = self.pool(index).err()?;
            Some(format!("the rule `{}`: {why}", *rule.name))
        };
        self.rules.iter().enumerate().filter_map(problem).collect()
    }

    fn adapts(&self) -> bool {
        self.rules.iter().any(|rule| rule.adaptive)
    }

    fn refuses_batches(&self) -> Option<String> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.journal) {
            return Some(format!(
                "the rule `{}` of `[[grant.http]]` has a journal, which belongs to one message; leave `journal` out, or \
                 handle single messages",
                *rule.name
            ));
        }
        let has_key = |rule: &&HttpRule| rule.idempotency_key != AddsKey::No;
        let rule = self.rules.iter().find(has_key)?;
        Some(format!(
            "the rule `{}` of `[[grant.http]]` adds an idempotency key, which belongs to one message; \
             write `idempotency_key = false` in the rule, or handle single messages",
            *rule.name
        ))
    }

    async fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<Response<Body>, HttpError> {
        let now = Instant::now();
        let denied = |why: String| {
            self.counts.http_denied.inc();
            HttpError::Denied(why)
        };
        let target = Target::parse(&request.url).map_err(|why| {
            let why = format!("the URL {why}");
            // The text before an `@` may be a password.
            let url = request.url.split(['?', '#']).next().unwrap_or_default();
            let url = url.rsplit('@').next().unwrap_or_default();
            self.denials.log(origin, url, &why, "no rule");
            denied(why)
        })?;
        let what = || format!("{} {}", request.method, target.without_query());
        let method = Method::from_bytes(request.method.as_bytes()).ok();
        let method = method.filter(|method| method.as_str().len() <= METHOD_MAX);
        let method = method.ok_or_else(|| denied("the method is not valid".to_owned()))?;
        let mut rules = self.rules.iter().enumerate();
        let Some((index, rule)) = rules.find(|(_, rule)| rule.allows(&method, &target)) else {
            let mut rules = self.rules.iter();
            let (why, rule) = match target.unclear() {
                Some(segment) if rules.any(|rule| rule.names(&method, &target)) => {
                    let shown = printable(truncated(segment, SEGMENT_MAX));
                    let why = format!(
                        "servers may read the segment `{shown}` in different ways, and leave the `path` of the rule"
                    );
                    (why, "a rule without `path`".to_owned())
                }
                _ => {
                    let why = "no rule of `[[grant.http]]` allows it".to_owned();
                    (why, suggestion(&method, &target))
                }
            };
            self.denials.log(origin, &what(), &why, &rule);
            return Err(denied(format!("{why}: {}", what())));
        };
        let headers = headers(&request.headers, &target, &request.body).map_err(|why| {
            self.counts.http[index].ended(RequestEnd::Denied);
            self.denials.log(origin, &what(), &why, "no rule");
            HttpError::Denied(why)
        })?;
        let pool = Arc::clone(self.pool(index).map_err(HttpError::Tls)?);
        let timeout = request.timeout.unwrap_or(rule.timeout).min(rule.timeout);
        let allowed = Allowed {
            origin,
            ordinal,
            group: self.group.as_deref(),
            target: target.clone(),
            deadline: (now + timeout).min(origin.deadline.into()),
            method,
            headers,
            body: request.body,
            call: None,
        };
        let journal = origin.journal.as_ref();
        let response = match journal.filter(|_| rule.journal && changes_something(&allowed.method))
        {
            Some(journal) => {
                journaled::send(pool, Arc::clone(&self.secrets), journal, allowed).await
            }
            None => pool.send(allowed, &self.secrets).await,
        };
        if let Err(HttpError::Denied(why)) = &response
            && why.ends_with(NOT_ALLOWED)
        {
            let (name, host) = (&*rule.name, &rule.host);
            let remedy = format!(
                "`networks` in the rule `{name}` ({host}), if the server is meant to be there"
            );
            self.denials.log(origin, &what(), why, &remedy);
        }
        response
    }
}
