//! A host in this process, with a native handler: for tests of the loop that need no component.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hostler::delivery::outcome::Outcome;
use hostler::queue::Queue;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::runtime::{Call, Control, Driver, Exit, Handler, Report, Settings};
use hostler::telemetry::health::Health;
use hostler::telemetry::metrics::Metrics;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One start of a handler: message id, attempt.
pub type Start = (String, u32);

/// A handler whose messages say what it does: see [`Script::act`].
#[derive(Clone, Debug, Default)]
pub struct Script {
    starts: Arc<Mutex<Vec<Start>>>,
}

impl Script {
    /// Every start so far, in order.
    pub fn starts(&self) -> Vec<Start> {
        self.lock().clone()
    }

    /// How many starts there were of messages with this id.
    pub fn starts_of(&self, id: &str) -> usize {
        self.starts().iter().filter(|(i, _)| i == id).count()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Start>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body's steps, separated by commas: step `n` for attempt `n`, the last one repeats.
    /// `ack`, `nack`, `nack:<ms>`, `drop`, `drop:<ms>` (after a sleep), `sleep:<ms>` (then ack).
    async fn act(&self, call: Call<'_>) -> Outcome {
        let id = call.message.id.to_string();
        self.lock().push((id, call.attempt));
        let body = String::from_utf8_lossy(&call.message.body).into_owned();
        let steps: Vec<&str> = body.split(',').collect();
        let index = (call.attempt as usize - 1).min(steps.len() - 1);
        let (word, argument) = steps[index].split_once(':').unwrap_or((steps[index], ""));
        let duration = || {
            Duration::from_millis(
                argument
                    .parse()
                    .expect("a step's argument is a number of milliseconds"),
            )
        };
        match word {
            "nack" if argument.is_empty() => Outcome::NackRequeue(None),
            "nack" => Outcome::NackRequeue(Some(duration())),
            "drop" => {
                if !argument.is_empty() {
                    tokio::time::sleep(duration()).await;
                }
                Outcome::Drop(Some("unwanted".to_owned()))
            }
            "sleep" => {
                tokio::time::sleep(duration()).await;
                Outcome::Ack
            }
            _ => Outcome::Ack,
        }
    }
}

impl Handler for Script {
    type Slot = ();

    fn slot(&self) {}

    async fn run<'a>(&'a self, _slot: &'a mut (), call: Call<'a>) -> Report {
        let outcome = self.act(call).await;
        Report::new(outcome, self.digest(), call.began.elapsed())
    }

    fn digest(&self) -> Arc<str> {
        Arc::from("script")
    }
}

/// A host that runs in this process.
pub struct Host {
    control: mpsc::Sender<Control>,
    run: JoinHandle<Exit>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Whether it is ready.
    pub health: Health,
}

impl Host {
    /// Start one on this stream.
    pub async fn start<H: Handler>(
        url: &str,
        options: StreamOptions,
        settings: Settings,
        handler: &Arc<H>,
    ) -> Self {
        let target = Target::parse(url, PasswordSource::Url, TlsFiles::default())
            .expect("the url of a test server is right");
        let connector = Connector::new(target, "hostler-test");
        let queue = StreamQueue::open(connector, options)
            .await
            .expect("the queue opens");
        Self::on(Arc::new(queue), settings, handler)
    }

    /// Start one on this queue.
    pub fn on<H: Handler>(queue: Arc<dyn Queue>, settings: Settings, handler: &Arc<H>) -> Self {
        Self::with_slots(queue, settings, handler, &Handle::current())
    }

    /// Start one on this queue; its slots run on `attempts`.
    pub fn with_slots<H: Handler>(
        queue: Arc<dyn Queue>,
        settings: Settings,
        handler: &Arc<H>,
        attempts: &Handle,
    ) -> Self {
        let metrics = Arc::<Metrics>::default();
        let health = Health::default();
        let (control, commands) = mpsc::channel(4);
        let driver = Driver::new(
            queue,
            handler,
            settings,
            Arc::clone(&metrics),
            health.clone(),
            attempts,
        );
        Self {
            control,
            run: tokio::spawn(driver.run(commands)),
            metrics,
            health,
        }
    }

    /// Ask it to stop, and wait until it has.
    pub async fn drain(self) -> Exit {
        self.control.send(Control::Drain).await.ok();
        self.run.await.expect("the driver does not panic")
    }

    /// Wait until it ends by itself.
    pub async fn ended(self) -> Exit {
        self.run.await.expect("the driver does not panic")
    }

    /// End it as a crash would: nothing is settled, nothing handed back.
    pub fn crash(self) {
        self.run.abort();
    }
}
