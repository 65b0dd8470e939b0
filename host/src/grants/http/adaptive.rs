//! The destinations of a rule with `adaptive`: how many calls each takes follows its answers, and one that is away is closed.
//!
//! It is in the memory of this host. A call over the limit waits in line, for half of its time at most. While a destination is closed, a call
//! fails at once. A message whose call was refused is held, if its attempt asks for another one: [`AskedHold`].
//!
//! - `controller`: the limit, and when a destination is closed.

mod controller;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::provider::HttpError;
use crate::delivery::millis::millis;
use crate::grants::context::AskedHold;
use crate::telemetry::rules::{DestinationSeen, SeesDestinations};
use controller::{Asked, Controller, Sign, Ticket};

/// The most destinations of a rule (`*.example.com`) with a limit of their own. The others share one.
const DESTINATIONS_MAX: usize = 64;
/// What those are called.
const OTHERS: &str = "others";
/// A call that had less time than this says nothing about a destination that did not answer it.
const ANSWER_MIN: Duration = Duration::from_secs(1);
/// The most calls that wait for one destination.
const WAITING_MAX: usize = 1_000;

/// The destinations of one rule.
#[derive(Debug)]
pub(in crate::grants) struct Destinations {
    rule: String,
    /// The most calls in flight to each.
    most: usize,
    all: Mutex<HashMap<String, Arc<Destination>>>,
}

#[derive(Debug)]
struct Destination {
    rule: String,
    name: String,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    controller: Controller,
    /// Those that wait, in order.
    waiting: VecDeque<oneshot::Sender<Result<Pass, HttpError>>>,
    /// What its last failure was.
    why: String,
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct Pass {
    destination: Arc<Destination>,
    ticket: Ticket,
    deadline: Instant,
    /// When the request was sent: before that, and if the guest does not finish it, a failure is not that of the destination.
    sent: Option<Instant>,
    has_said: bool,
    is_over: bool,
}

impl Destinations {
    pub(in crate::grants) fn new(rule: &str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            rule: rule.to_owned(),
            most,
            all: Mutex::default(),
        })
    }

    /// Wait for the turn of a call.
    ///
    /// # Errors
    /// The destination is closed, or the call has waited for too long. Its message is held.
    pub(super) async fn enter(
        &self,
        authority: &str,
        deadline: Instant,
        hold: Option<&AskedHold>,
    ) -> Result<Pass, HttpError> {
        let destination = self.destination(authority);
        let entered = destination.enter(deadline).await;
        if entered.is_err()
            && let Some(hold) = hold
        {
            hold.ask(destination.line.lock().controller.hold(Instant::now()));
        }
        entered
    }

    fn destination(&self, authority: &str) -> Arc<Destination> {
        let mut all = self.all.lock();
        if let Some(known) = all.get(authority) {
            return Arc::clone(known);
        }
        if all.len() >= DESTINATIONS_MAX {
            let idle = all.iter().find(|(_, one)| one.is_idle());
            if let Some(idle) = idle.map(|(name, _)| name.clone()) {
                all.remove(&idle);
            }
        }
        let name = match all.len() < DESTINATIONS_MAX {
            true => authority,
            false => OTHERS,
        };
        let made = || {
            Arc::new(Destination {
                rule: self.rule.clone(),
                name: name.to_owned(),
                line: Mutex::new(Line {
                    controller: Controller::new(self.most),
                    waiting: VecDeque::new(),
                    why: String::new(),
                }),
            })
        };
        Arc::clone(all.entry(name.to_owned()).or_insert_with(made))
    }
}

impl SeesDestinations for Destinations {
    fn seen(&self) -> Vec<DestinationSeen> {
        let mut all = self.all.lock();
        // Nobody calls it any more, so nothing would open it.
        all.retain(|_, one| !(one.is_idle() && one.is_closed()));
        let all: Vec<_> = all.values().cloned().collect();
        let mut seen: Vec<_> = all.iter().map(|one| one.seen()).collect();
        seen.sort_by(|a, b| a.destination.cmp(&b.destination));
        seen
    }
}

impl Destination {
    /// Nothing is known of it that would be missed.
    fn is_idle(self: &Arc<Self>) -> bool {
        let line = self.line.lock();
        Arc::strong_count(self) == 1 && line.controller.is_forgettable(Instant::now())
    }

    fn is_closed(&self) -> bool {
        self.line.lock().controller.closed_since().is_some()
    }

    async fn enter(self: &Arc<Self>, deadline: Instant) -> Result<Pass, HttpError> {
        let now = Instant::now();
        let turn = {
            let mut line = self.line.lock();
            match line.controller.ask(now) {
                Asked::Go(ticket) => return Ok(Pass::new(self, ticket, deadline)),
                Asked::Closed => return Err(self.closed(&line, now)),
                Asked::Wait => {}
            }
            if line.waiting.len() >= WAITING_MAX {
                line.waiting.retain(|waits| !waits.is_closed());
            }
            if line.waiting.len() >= WAITING_MAX {
                let why = format!("{WAITING_MAX} calls to `{}` wait", self.name);
                return Err(HttpError::Closed(why));
            }
            let (tell, turn) = oneshot::channel();
            line.waiting.push_back(tell);
            turn
        };
        let half = deadline.saturating_duration_since(now) / 2;
        match timeout(half, turn).await {
            Ok(Ok(turn)) => turn.map(|mut pass| {
                pass.deadline = deadline;
                pass
            }),
            Ok(Err(_)) | Err(_) => Err(HttpError::Closed(format!(
                "`{}` takes no more calls at a time: this one has waited for {} ms",
                self.name,
                millis(half)
            ))),
        }
    }

    fn closed(&self, line: &Line, now: Instant) -> HttpError {
        let left = millis(line.controller.hold(now));
        let (name, why) = (&self.name, &line.why);
        HttpError::Closed(format!(
            "`{name}` has failed ({why}), and gets no calls; try again in {left} ms"
        ))
    }

    /// Let those go on that may; refuse all if it is closed.
    fn advance(self: &Arc<Self>, line: &mut Line) {
        let now = Instant::now();
        while let Some(first) = line.waiting.pop_front() {
            if first.is_closed() {
                continue;
            }
            match line.controller.ask(now) {
                Asked::Go(ticket) => {
                    let pass = Pass::new(self, ticket, now);
                    if let Err(Ok(pass)) = first.send(Ok(pass)) {
                        // It has gone in this moment. Its end would take the lock.
                        pass.unused(line, now);
                    }
                }
                Asked::Wait => {
                    line.waiting.push_front(first);
                    return;
                }
                // It may have gone: then nobody is told.
                Asked::Closed => drop(first.send(Err(self.closed(line, now)))),
            }
        }
    }

    fn says(&self, line: &mut Line, ticket: Ticket, sign: Sign, why: impl FnOnce() -> String) {
        let was_closed = line.controller.closed_since().is_some();
        if let Sign::Busy(_) | Sign::Failed(_) = sign {
            line.why = why();
        }
        let now = Instant::now();
        line.controller.says(now, ticket, sign, fastrand::f64());
        let (rule, destination, reason) = (&self.rule, &self.name, &line.why);
        match (was_closed, line.controller.closed_since()) {
            (false, Some(_)) => warn!(
                rule,
                destination,
                reason,
                again_ms = millis(line.controller.hold(now)),
                "a destination is closed: calls to it fail at once, until one that tries it is answered"
            ),
            (true, None) => info!(rule, destination, "a destination is open again"),
            _ => {}
        }
    }

    fn seen(&self) -> DestinationSeen {
        let line = self.line.lock();
        let since = line.controller.closed_since();
        DestinationSeen {
            rule: self.rule.clone(),
            destination: self.name.clone(),
            in_flight: line.controller.in_flight() as u64,
            allowed: line.controller.allowed() as u64,
            waiting: line.waiting.len() as u64,
            closed_ms: since.map(|since| millis(since.elapsed())),
            why: since.map(|_| line.why.clone()),
        }
    }
}

impl Pass {
    fn new(destination: &Arc<Destination>, ticket: Ticket, deadline: Instant) -> Self {
        Self {
            destination: Arc::clone(destination),
            ticket,
            deadline,
            sent: None,
            has_said: false,
            is_over: false,
        }
    }

    /// The request is sent now.
    pub(super) fn sent(&mut self) {
        self.sent = Some(Instant::now());
    }

    /// The guest did not finish its request.
    pub(super) fn unfinished(&mut self) {
        self.sent = None;
    }

    /// The destination had time to answer, and did not.
    fn was_silent(&self) -> bool {
        self.sent.is_some_and(|at| at.elapsed() >= ANSWER_MIN)
    }

    /// The call has ended so, or its response has begun, `took` after it was sent. If the destination is closed by now, the message is held.
    pub(super) fn says<B>(
        &mut self,
        result: Result<&Response<B>, &HttpError>,
        took: Option<Duration>,
        hold: Option<&AskedHold>,
    ) {
        self.has_said = true;
        let sign = match result {
            Ok(response) => match response.status().as_u16() {
                429 => Sign::Busy(retry_after(response.headers())),
                502..=504 => Sign::Failed(retry_after(response.headers())),
                200..400 => Sign::Answered(took),
                // Other errors are those of the request, for all that is known.
                _ => Sign::Answered(None),
            },
            Err(HttpError::Denied(_) | HttpError::Closed(_)) => Sign::Nothing,
            Err(_) if self.sent.is_none() => Sign::Nothing,
            Err(HttpError::Timeout) if !self.was_silent() => Sign::Nothing,
            Err(HttpError::TooLarge(_)) => Sign::Answered(None),
            Err(
                HttpError::Dns(_)
                | HttpError::Connect(_)
                | HttpError::Tls(_)
                | HttpError::Timeout
                | HttpError::Protocol(_),
            ) => Sign::Failed(None),
        };
        let mut line = self.destination.line.lock();
        self.destination
            .says(&mut line, self.ticket, sign, || match result {
                Ok(response) => format!("status {}", response.status().as_u16()),
                Err(error) => error.to_string(),
            });
        let is_bad = matches!(sign, Sign::Busy(_) | Sign::Failed(_));
        if let Some(hold) = hold
            && is_bad
            && line.controller.closed_since().is_some()
        {
            hold.ask(line.controller.hold(Instant::now()));
        }
        self.destination.advance(&mut line);
    }

    /// Nobody has waited for it.
    fn unused(mut self, line: &mut Line, now: Instant) {
        self.is_over = true;
        line.controller.says(now, self.ticket, Sign::Nothing, 0.0);
        line.controller.left();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut line = self.destination.line.lock();
        if !self.has_said {
            // The attempt has ended. If that is because its time was over, the destination did not answer in time.
            let sign = match Instant::now() >= self.deadline && self.was_silent() {
                true => Sign::Failed(None),
                false => Sign::Nothing,
            };
            let why = || HttpError::Timeout.to_string();
            self.destination.says(&mut line, self.ticket, sign, why);
        }
        line.controller.left();
        self.destination.advance(&mut line);
    }
}

/// For how long no call should come: a number of seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(date.duration_since(Timestamp::now())).ok()?
        }
    };
    (!pause.is_zero()).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let pause = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(pause("120"), Some(Duration::from_secs(120)));
        assert_eq!(pause(" 7 "), Some(Duration::from_secs(7)));
        for none in ["0", "-1", "soon", "", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(pause(none), None, "{none}");
        }
        let far = pause("Fri, 31 Dec 2100 23:59:59 GMT").unwrap();
        assert!(far > Duration::from_secs(365 * 24 * 3600));
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn ok() -> Response<()> {
        Response::new(())
    }

    fn unavailable() -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        response
    }

    #[tokio::test]
    async fn failures_close_a_destination_only_if_the_request_was_sent_and_had_time() {
        let destinations = Destinations::new("api", 9);
        let refused = HttpError::Connect("no connection".to_owned());
        for _ in 0..20 {
            let mut pass = destinations.enter("a", soon(), None).await.unwrap();
            pass.says::<()>(Err(&refused), None, None);
            let mut pass = destinations.enter("a", soon(), None).await.unwrap();
            pass.sent();
            pass.says::<()>(Err(&HttpError::Timeout), None, None);
            let mut pass = destinations.enter("a", soon(), None).await.unwrap();
            pass.sent();
            pass.unfinished();
            pass.says::<()>(Err(&refused), None, None);
        }
        for _ in 0..controller::FAILURES_MAX {
            let mut pass = destinations.enter("a", soon(), None).await.unwrap();
            pass.sent();
            pass.says::<()>(Err(&refused), None, None);
        }
        let closed = destinations.enter("a", soon(), None).await;
        assert!(matches!(closed, Err(HttpError::Closed(_))), "{closed:?}");
    }

    #[tokio::test]
    async fn calls_wait_in_order_and_all_are_refused_where_the_destination_closes() {
        let destinations = Destinations::new("api", 1);
        let hold = AskedHold::default();
        let mut first = destinations.enter("a", soon(), None).await.unwrap();
        let wait = |deadline| {
            let destinations = Arc::clone(&destinations);
            tokio::spawn(async move { destinations.enter("a", deadline, None).await })
        };
        let waiting = || destinations.seen()[0].waiting;
        let second = wait(soon());
        while waiting() < 1 {
            tokio::task::yield_now().await;
        }
        let gone = wait(soon());
        while waiting() < 2 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        let third = wait(soon());
        while waiting() < 3 {
            tokio::task::yield_now().await;
        }
        // Its time is over before its turn comes: it says so, and its message is held.
        let short = Instant::now() + Duration::from_millis(20);
        let late = destinations.enter("a", short, Some(&hold)).await;
        assert!(matches!(late, Err(HttpError::Closed(_))), "{late:?}");
        assert!(hold.asked().is_some());
        first.says(Ok(&ok()), None, None);
        drop(first);
        let mut second = second.await.unwrap().unwrap();
        assert!(!third.is_finished());
        let mut pause = unavailable();
        pause
            .headers_mut()
            .insert(RETRY_AFTER, "30".parse().unwrap());
        let hold = AskedHold::default();
        second.says(Ok(&pause), None, Some(&hold));
        assert!(hold.asked().unwrap() >= Duration::from_secs(29));
        assert!(matches!(third.await.unwrap(), Err(HttpError::Closed(_))));
        let refused = destinations.enter("a", soon(), None).await.unwrap_err();
        assert!(refused.to_string().contains("status 503"), "{refused}");
        // Another one is open.
        destinations.enter("b", soon(), None).await.unwrap();
        let seen = destinations.seen();
        assert_eq!((seen[0].allowed, seen[0].closed_ms.is_some()), (0, true));
        assert_eq!((seen[1].allowed, seen[1].closed_ms), (1, None));
    }

    #[tokio::test]
    async fn the_destinations_of_a_rule_are_bounded() {
        let destinations = Destinations::new("any", 5);
        let mut passes = Vec::new();
        for number in 0..3 * DESTINATIONS_MAX {
            let name = format!("{number}.example.com");
            // The first third does not stay.
            let pass = destinations.enter(&name, soon(), None);
            let pass = timeout(Duration::from_millis(1), pass).await;
            if number >= DESTINATIONS_MAX {
                passes.push(pass);
            }
        }
        let seen = destinations.seen();
        assert_eq!(seen.len(), DESTINATIONS_MAX + 1, "{seen:?}");
        assert!(seen.iter().any(|one| one.destination == OTHERS));
    }
}
