//! The supervisor of the process, such as systemd. It learns when the host has begun to read, why it is not
//! ready, that it is stopping, and that its loop still turns.
//!
//! Without the variable `NOTIFY_SOCKET` no notification is sent.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::time::sleep;
use tracing::warn;

use crate::delivery::text::printable;
use crate::telemetry::health::{Cause, Health, Impediment};

/// How often the health of the host is looked at.
const EVERY: Duration = Duration::from_millis(200);
/// How many times the host reports in the time after which the supervisor takes it for stuck.
const BEATS: u32 = 3;

/// Notify the supervisor about this host for as long as it runs.
///
/// This runs on the thread of the loop: when that thread hangs, the reports end, too.
pub async fn follow(health: Health) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled().map(|patience| patience / BEATS);
    let mut said = Said::default();
    loop {
        let now = Instant::now();
        let impediments = health.impediments();
        let mut news = said.news(&impediments);
        if let Some(every) = watchdog
            && said.beat.is_none_or(|beat| now - beat >= every)
            && health.stuck(now).is_none()
        {
            said.beat = Some(now);
            news.push(News::Beat);
        }
        for news in news {
            if let Err(error) = news.tell() {
                warn!(%error, "cannot tell the supervisor: it hears no more of this host");
                return;
            }
        }
        sleep(EVERY).await;
    }
}

/// Notify the supervisor that the host stops: the drain may take `drain_timeout`.
pub fn stopping() {
    // A supervisor that does not hear it sees the process end.
    let _heard = News::Stopping.tell().is_ok();
}

/// What the supervisor knows.
#[derive(Debug, Default)]
struct Said {
    is_started: bool,
    status: String,
    beat: Option<Instant>,
}

/// The notifications that it gets.
#[derive(Debug, Eq, PartialEq)]
enum News {
    Started,
    Stopping,
    Status(String),
    Beat,
}

impl Said {
    /// What it does not know yet.
    fn news(&mut self, impediments: &[Impediment]) -> Vec<News> {
        let mut news = Vec::new();
        let status = status(impediments);
        if status != self.status {
            self.status.clone_from(&status);
            news.push(News::Status(status));
        }
        let is_starting = impediments.iter().any(|one| one.cause == Cause::Starting);
        if !self.is_started && !is_starting {
            self.is_started = true;
            news.push(News::Started);
        }
        news
    }
}

impl News {
    fn tell(&self) -> std::io::Result<()> {
        let state = match self {
            Self::Started => NotifyState::Ready,
            Self::Stopping => NotifyState::Stopping,
            Self::Status(status) => NotifyState::Status(status),
            Self::Beat => NotifyState::Watchdog,
        };
        sd_notify::notify(&[state])
    }
}

/// The health in one line.
fn status(impediments: &[Impediment]) -> String {
    if impediments.is_empty() {
        return "ready".to_owned();
    }
    let text = |one: &Impediment| format!("{}: {}", one.cause, one.detail);
    let texts: Vec<String> = impediments.iter().map(text).collect();
    printable(&format!("not ready: {}", texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_supervisor_hears_of_each_change_once() {
        let health = Health::default();
        let mut said = Said::default();
        let starting = News::Status("not ready: starting: not reading yet".to_owned());
        assert_eq!(said.news(&health.impediments()), [starting]);
        assert_eq!(said.news(&health.impediments()), []);
        health.clear(Cause::Starting);
        let ready = News::Status("ready".to_owned());
        assert_eq!(said.news(&health.impediments()), [ready, News::Started]);
        health.impede(Cause::RedisAway, "connection\nrefused");
        let away = News::Status("not ready: redis-away: connection\\nrefused".to_owned());
        assert_eq!(said.news(&health.impediments()), [away]);
        assert_eq!(said.news(&health.impediments()), []);
    }
}
