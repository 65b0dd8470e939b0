//! `hostler watch`: what a queue and its hosts do right now, again and again.
//!
//! - [`gather`]: one look, from Redis and from the admin servers of hosts.
//! - [`view`]: how a look is shown: a screen, or a line.

use std::io::IsTerminal;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::connect::{Connected, ask, patiently};
use crate::cli::dlq::filter::duration;
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, ReachQueue};
use crate::cli::run::Stops;
use crate::cli::{Variables, flags, output};
use crate::queue::kind::Place;

mod gather;
mod view;

use gather::{Gatherer, Look};

/// How often the keyboard is asked.
const KEYS_EVERY: Duration = Duration::from_millis(100);

/// Watch a queue live: rates, lag, what runs, dead letters by reason, faults of late
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A screen on a terminal (q or Ctrl-C ends it), a line for each look anywhere else. What Redis knows needs
nothing else; what runs, the handler's version and the faults of late come from the hosts that --admin
names.

Examples:
  hostler watch --redis redis://localhost --stream orders --group billing --dead-letter orders:dead
  hostler watch --config orders.toml --admin 10.0.0.7:9400 --admin 10.0.0.8:9400
  hostler watch --config orders.toml --json --count 1 | jq .dead_letters")]
pub(super) struct Args {
    /// The admin server of a host (its `--admin`); may be repeated
    #[arg(long = "admin", value_name = "ADDRESS")]
    hosts: Vec<String>,

    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = every)]
    every: Duration,

    /// End after so many looks
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,

    /// Print a line of JSON for each look
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<ReachQueue>,
}

fn every(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(100) => {
            Err("no oftener than every 100ms".to_owned())
        }
        every => Ok(every),
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let Args {
        hosts,
        every,
        count,
        json,
        flags,
    } = args;
    let sources = flags.sources(variables);
    let loaded = sources.collect(None, Vec::new()).redis_and_queue()?;
    flags::warn(&loaded.warnings);
    let (redis, queue, dead_letter) = loaded.value;
    if queue.place() == Place::PubSub {
        let what = "a channel holds nothing: there is nothing to watch";
        return Err(Failure::new(Exit::Usage, what).hint("give `--stream` or `--list`"));
    }
    let to_screen = !json && std::io::stdout().is_terminal();
    ask(async {
        let connected = Connected::new(&redis, "watch").await?;
        let link = connected.connector.link("reach");
        let reached = patiently(redis.wait, async || link.reach().await).await;
        let watched = match reached {
            Ok(()) => {
                let connector = &connected.connector;
                let gatherer = Gatherer::new(connector, sources, queue, dead_letter, hosts);
                let watch = Watch {
                    gatherer,
                    every,
                    left: count.map(NonZeroU64::get),
                };
                match to_screen {
                    true => watch.on_screen().await,
                    false => watch.in_lines(json).await,
                }
            }
            Err(failure) => Err(failure),
        };
        connected.close().await;
        watched
    })
}

struct Watch {
    gatherer: Gatherer,
    every: Duration,
    left: Option<u64>,
}

impl Watch {
    /// A line for each look.
    async fn in_lines(mut self, json: bool) -> Result<Exit, Failure> {
        let mut stops = Stops::listen()?;
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                exit = stops.next() => return Ok(exit),
                _ = ticks.tick() => {}
            }
            let look = self.look().await?;
            if json {
                output::json(&look)?;
            } else {
                output::line(&view::line(&look))?;
            }
            if self.left == Some(0) {
                return Ok(Exit::Ok);
            }
        }
    }

    /// A screen that is drawn anew for each look.
    async fn on_screen(mut self) -> Result<Exit, Failure> {
        let mut stops = Stops::listen()?;
        // What can be wrong with the queue is told before the screen is taken.
        let first = self.look().await?;
        let cannot = |error: std::io::Error| Failure::io("cannot use the terminal", &error);
        let mut keys = Keys::listen();
        let mut terminal = ratatui::try_init().map_err(cannot)?;
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let mut shown = first;
        let ended = loop {
            let drawn = terminal.draw(|frame| view::screen(&shown, frame));
            if let Err(error) = drawn {
                break Err(cannot(error));
            }
            if self.left == Some(0) {
                break Ok(Exit::Ok);
            }
            tokio::select! {
                biased;
                exit = stops.next() => break Ok(exit),
                key = keys.next() => match key {
                    Key::Quit => break Ok(Exit::Ok),
                    Key::Resized => {}
                },
                _ = ticks.tick() => match self.look().await {
                    Ok(look) => shown = look,
                    Err(failure) => shown.trouble = Some(failure.what),
                },
            }
        };
        ratatui::restore();
        ended
    }

    async fn look(&mut self) -> Result<Look, Failure> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.gatherer.look().await
    }
}

enum Key {
    Quit,
    Resized,
}

/// The keyboard, on a thread of its own: asking it blocks.
struct Keys {
    heard: mpsc::Receiver<Key>,
    over: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> Self {
        let (tell, heard) = mpsc::channel(8);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let event = match event::poll(KEYS_EVERY) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    // A terminal that is gone asks for nothing.
                    Err(_) => return,
                };
                let key = match event {
                    Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                        let control = key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('c') if control => Key::Quit,
                            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
                            _ => continue,
                        }
                    }
                    Ok(Event::Resize(..)) => Key::Resized,
                    Ok(_) => continue,
                    Err(_) => return,
                };
                if tell.blocking_send(key).is_err() {
                    return;
                }
            }
        });
        Self { heard, over }
    }

    async fn next(&mut self) -> Key {
        match self.heard.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
