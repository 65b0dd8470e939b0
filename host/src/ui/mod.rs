//! The dashboard: one page, and what it asks for.
//!
//! | route | answer |
//! |---|---|
//! | `GET /ui`, `/ui/app.js`, `/ui/app.css` | the page: embedded, no outside resource |
//! | `GET /ui/uplot.js`, `/ui/uplot.css` | its charts, by uPlot |
//! | `GET /ui/api/session` | whether actions are possible |
//! | `GET /ui/api/queues` | every listed queue, as it was a moment ago |
//! | `GET /ui/api/queue` | one queue: hosts, rules, versions, policies, its course |
//! | `GET /ui/api/dead`, `/ui/api/groups`, `/ui/api/letter` | dead letters: by reason, by cause, one whole |
//! | `GET /ui/api/trace` | where one message is, and its past |
//! | `POST /ui/api/act/...` | actions, with a token only |
//!
//! Reading needs no token: bind the address where only operators reach it. An action needs the token, in a
//! header that only the page's own script can set, and the origin of the page: no other page can send it, and
//! no cookie does. Each action is logged. Trying a dead letter runs a handler on this machine, so only those that the
//! operator named at the start can be tried: no request brings one, or names a file.
//!
//! - [`guard`]: which requests are answered. [`page`]: the files and their headers.
//! - [`api`]: what can be read. [`act`]: what can be done. [`course`]: figures over time.

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::redis::connection::Connector;
use crate::redis::target::Secret;
use crate::trial::Candidate;
use crate::wire::stream;

mod act;
mod api;
mod course;
mod guard;
mod page;

use course::Course;

/// What the dashboard works with.
#[derive(Clone, Debug)]
pub struct Ui(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connector: Connector,
    /// Needed for actions; `None` = there are no actions.
    token: Option<Secret>,
    course: Course,
    /// What dead letters may be tried with.
    trials: Option<Trials>,
    /// One dead letter is tried at a time.
    turn: Semaphore,
    /// The turns of the requests that read dead letters.
    reader: Semaphore,
}

/// The handlers that dead letters may be tried with: those that the operator named at the start.
#[derive(Debug)]
pub struct Trials {
    /// Each with the name of its file.
    pub candidates: Vec<(String, Candidate)>,
    /// How stream entries are read.
    pub reading: stream::Options,
    /// Attempts run here.
    pub attempts: Handle,
}

impl Ui {
    /// The dashboard of this server. Without a token it only reads. Without `trials`, nothing can be tried.
    pub fn new(connector: Connector, token: Option<Secret>, trials: Option<Trials>) -> Self {
        Self(Arc::new(Inner {
            course: Course::default(),
            connector,
            token,
            trials,
            turn: Semaphore::new(1),
            reader: Semaphore::new(1),
        }))
    }

    /// The routes. They begin with `/ui`.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/ui", get(page::index))
            .route("/ui/app.js", get(page::script))
            .route("/ui/app.css", get(page::style))
            .route("/ui/uplot.js", get(page::charts))
            .route("/ui/uplot.css", get(page::charts_style))
            .route("/ui/api/session", get(api::session))
            .route("/ui/api/queues", get(api::queues))
            .route("/ui/api/queue", get(api::queue))
            .route("/ui/api/dead", get(api::dead))
            .route("/ui/api/groups", get(api::groups))
            .route("/ui/api/letter", get(api::letter))
            .route("/ui/api/trace", get(api::trace))
            .route("/ui/api/policies", get(api::policies))
            .route("/ui/api/act/{action}", post(act::act))
            .layer(middleware::from_fn_with_state(self.clone(), guard::guard))
            .with_state(self.clone())
    }
}
