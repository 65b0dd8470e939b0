//! `hostler watch`: the state of a queue and its hosts, again and again.
//!
//! - [`snapshot`]: the state at one moment, from Redis and from the admin servers of hosts.
//! - [`render`]: a snapshot as a screen, or as a line.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::cli::named::{OfQueue, with_queue};
use crate::cli::{Exit, Failure, Variables, ask_at, output, text};
use crate::config::Value;
use crate::host::StopSignals;
use crate::redis::connection::Connector;

mod render;
mod snapshot;

use snapshot::{QueueSnapshot, QueuesSnapshot, SnapshotReader};

/// How often the keyboard is polled.
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// The shortest time between two snapshots.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// Watch queues live: rates, lag, running handlers, dead letters, recent faults
#[derive(Debug, clap::Args)]
#[command(after_help = "\
On a terminal this is a screen (q or Ctrl-C ends it); elsewhere it prints one
line per snapshot, with --json a line of JSON. Most figures come from Redis. The
running handlers, the version of the handler and the recent faults come from the
hosts: name their admin servers with --admin.

Examples:
  hostler watch --redis redis://localhost orders
  hostler watch --redis redis+cluster://a,b,c '{orders:*}'
  hostler watch --redis redis://localhost --stream orders --group billing \\
    --dead-letter orders:dead
  hostler watch --config orders.toml --admin 10.0.0.7:9400 \\
    --admin 10.0.0.8:9400
  hostler watch --config orders.toml --json --count 1 | jq .dead_letters")]
pub(super) struct Args {
    /// The admin server of a host (its `--admin`); may be repeated. A port alone
    /// means this machine
    #[arg(long = "admin", value_name = "ADDRESS", value_parser = admin)]
    hosts: Vec<String>,

    /// The time between two snapshots
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    every: Duration,

    /// End after this many snapshots
    #[arg(long, value_name = "N", value_parser = text::parse::<NonZeroU64>)]
    count: Option<NonZeroU64>,

    #[command(flatten)]
    of: OfQueue,
}

/// The address of an admin server: as a host's `--admin`, a name and a port, or a URL.
fn admin(text: &str) -> Result<String, &'static str> {
    if let Ok(address) = SocketAddr::parse(text) {
        return Ok(address.to_string());
    }
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.trim_end_matches('/');
    let port = address
        .rsplit_once(':')
        .map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
    match port {
        Some((false, Ok(_))) => Ok(address.to_owned()),
        _ => Err("write it as 127.0.0.1:9400, name:9400, or a port alone"),
    }
}

fn every(text: &str) -> Result<Duration, String> {
    match text::parse(text)? {
        short if short < EVERY_MIN => Err("the shortest is 100ms".to_owned()),
        every => Ok(every),
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    const COMMAND: &str = "watch";
    let (every, left) = (args.every, args.count.map(NonZeroU64::get));
    let of = args.of;
    let json = of.common.json;
    if let Some(pattern) = of.named.pattern() {
        if !args.hosts.is_empty() {
            let what = "`--admin` shows the hosts of one queue, and this is a pattern";
            let hint = "leave `--admin` out, or name one queue";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
        let redis = of.common.flags.clone().collect(variables).redis()?.value;
        return ask_at(&redis, COMMAND, async |session| {
            let view = View::All(session.connector.clone(), pattern.to_owned());
            Watch { view, every, left }.show(json).await
        });
    }
    with_queue(of, variables, COMMAND, async |session, found| {
        let reader = SnapshotReader::new(session, found, args.hosts);
        let view = View::One(Box::new(reader));
        Watch { view, every, left }.show(json).await
    })
}

struct Watch {
    view: View,
    every: Duration,
    /// How many snapshots are left; `None` = no limit.
    left: Option<u64>,
}

/// What is watched.
enum View {
    One(Box<SnapshotReader>),
    /// All listed queues that match this pattern.
    All(Connector, String),
}

/// A moment of it.
#[derive(Serialize)]
#[serde(untagged)]
enum Snapshot {
    One(Box<QueueSnapshot>),
    All(QueuesSnapshot),
}

impl Snapshot {
    fn line(&self) -> String {
        match self {
            Self::One(queue) => render::line(queue),
            Self::All(queues) => render::line_of_all(queues),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        match self {
            Self::One(queue) => render::screen(queue, frame),
            Self::All(queues) => render::screen_of_all(queues, frame),
        }
    }

    fn set_trouble(&mut self, trouble: String) {
        match self {
            Self::One(queue) => queue.trouble = Some(trouble),
            Self::All(queues) => queues.trouble = Some(trouble),
        }
    }
}

impl Watch {
    async fn show(self, json: bool) -> Result<Exit, Failure> {
        match !json && std::io::stdout().is_terminal() {
            true => self.on_screen().await,
            false => self.in_lines(json).await,
        }
    }

    /// A line for each snapshot.
    async fn in_lines(mut self, json: bool) -> Result<Exit, Failure> {
        let mut stops = StopSignals::listen()?;
        let mut ticks = self.ticks();
        loop {
            tokio::select! {
                biased;
                signal = stops.next() => return Ok(signal.into()),
                _ = ticks.tick() => {}
            }
            output::either(json, &self.read().await?, Snapshot::line)?;
            if self.left == Some(0) {
                return Ok(Exit::Ok);
            }
        }
    }

    /// A screen that is drawn again for each snapshot.
    async fn on_screen(mut self) -> Result<Exit, Failure> {
        let mut stops = StopSignals::listen()?;
        // An error of the queue is printed before the screen is taken.
        let mut shown = self.read().await?;
        let cannot = |error: std::io::Error| Failure::io("cannot use the terminal", &error);
        let mut keys = Keys::listen();
        let mut terminal = ratatui::try_init().map_err(cannot)?;
        let mut ticks = self.ticks();
        ticks.reset();
        let ended = loop {
            let drawn = terminal.draw(|frame| shown.draw(frame));
            if let Err(error) = drawn {
                break Err(cannot(error));
            }
            if self.left == Some(0) {
                break Ok(Exit::Ok);
            }
            tokio::select! {
                biased;
                signal = stops.next() => break Ok(signal.into()),
                key = keys.next() => match key {
                    Key::Quit => break Ok(Exit::Ok),
                    Key::Resized => {}
                },
                _ = ticks.tick() => match self.read().await {
                    Ok(snapshot) => shown = snapshot,
                    Err(failure) => shown.set_trouble(failure.what),
                },
            }
        };
        ratatui::restore();
        ended
    }

    fn ticks(&self) -> Interval {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    async fn read(&mut self) -> Result<Snapshot, Failure> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(match &mut self.view {
            View::One(reader) => Snapshot::One(Box::new(reader.read().await?)),
            View::All(connector, pattern) => {
                Snapshot::All(QueuesSnapshot::read(connector, pattern).await?)
            }
        })
    }
}

enum Key {
    Quit,
    Resized,
}

/// The keyboard, on a thread of its own: reading it blocks.
struct Keys {
    pressed: mpsc::Receiver<Key>,
    ended: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> Self {
        let (sender, pressed) = mpsc::channel(8);
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let key = match next_key() {
                    Ok(Some(key)) => key,
                    Ok(None) => continue,
                    // The terminal is gone.
                    Err(_) => return,
                };
                if sender.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        Self { pressed, ended }
    }

    async fn next(&mut self) -> Key {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

/// A key that means something, if one is pressed soon.
fn next_key() -> std::io::Result<Option<Key>> {
    if !event::poll(KEYS_EVERY)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Resize(..) => Some(Key::Resized),
        Event::Key(key) if key.kind == KeyEventKind::Press => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('c') if control => Some(Key::Quit),
                KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
                _ => None,
            }
        }
        _ => None,
    })
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_server_is_named_by_its_port_its_address_or_its_url() {
        for (text, address) in [
            ("7911", "127.0.0.1:7911"),
            (":7911", "127.0.0.1:7911"),
            ("localhost:7911", "127.0.0.1:7911"),
            ("10.0.0.7:7911", "10.0.0.7:7911"),
            ("[::1]:7911", "[::1]:7911"),
            ("web-1.internal:7911", "web-1.internal:7911"),
            ("http://web-1:7911/", "web-1:7911"),
        ] {
            assert_eq!(admin(text).as_deref(), Ok(address));
        }
        for wrong in ["", "web-1", "web-1:", "70000", "web-1:x", "http://:7911"] {
            admin(wrong).unwrap_err();
        }
    }
}
