//! Runs a dead attempt again with the answers of its recording: nothing is asked outside.

use std::sync::Arc;

use crate::dead_letter::Entry;
use crate::delivery::message::Message;
use crate::delivery::recording::{
    Difference, Ended, Exchange, Played, Player, Recording, Track, Unreadable, Watch,
};
use crate::delivery::trace::Traced;
use crate::grants::journal::memory::Memory;
use crate::grants::journal::session::{Counts, Session};
use crate::sandbox::{BACKTRACE, Call, Capture, LogLine, LogSink, Sandbox, Settings};
use crate::workbench::Error;

/// The most bytes of a backtrace with lines of source, and of the log beside it.
const LINES_MAX: usize = 64 << 10;

/// A dead letter whose last attempt is recorded.
#[derive(Debug)]
pub struct Recorded {
    recording: Recording,
    message: Message,
    /// The end of the log, without its backtrace.
    log: Vec<String>,
}

/// What became of an attempt that ran again.
#[derive(Debug)]
pub struct Again {
    /// Whether that is what it should be.
    pub verdict: Verdict,
    /// Why, a line for each reason.
    pub why: Vec<String>,
    /// How it ended.
    pub ended: Ended,
    /// Every line that it wrote.
    pub lines: Vec<LogLine>,
    /// The functions in which it failed, with lines of source where the component has them.
    pub backtrace: Vec<String>,
}

/// The result of an attempt that ran again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The handler of the attempt: it ended in the same way.
    Same,
    /// The handler of the attempt: it ended otherwise.
    Differs,
    /// Another handler: it acks.
    Passes,
    /// Another handler: it does not.
    Fails,
    /// The recording does not tell.
    CannotTell,
}

impl Verdict {
    /// In a word or a few.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::CannotTell => "cannot tell",
        }
    }
}

impl Recorded {
    /// Read the recording of an entry.
    ///
    /// # Errors
    /// It has none, it cannot be read, or the entry is no message.
    pub fn of(entry: &Entry) -> Result<Self, Error> {
        let Some(recording) = entry.recording() else {
            return Err(Error::usage_with(
                format_args!("the dead letter {} has no recording", entry.id),
                "write `recording = \"full\"` in `[dead_letter]` of the queue's file: later dead letters have one",
            ));
        };
        let unreadable = |error: Unreadable| Error::usage(error);
        let recording = recording.map_err(unreadable)?;
        if let Some(defect) = &entry.defect {
            return Err(Error::usage(format_args!("it is no message: {defect}")));
        }
        let head = &recording.head;
        let message = Message {
            id: head.id.as_str().into(),
            queue: head.queue.as_str().into(),
            body: entry.body.clone(),
            headers: recording.headers().unwrap_or_else(|| entry.headers.clone()),
            enqueued_ms: head.enqueued_ms,
        };
        let log = entry.log();
        Ok(Self {
            log: without_backtrace(log.iter().map(String::as_str)),
            recording,
            message,
        })
    }

    /// The digest of the handler of the attempt.
    pub fn handler(&self) -> &str {
        &self.recording.head.handler
    }

    /// How the attempt ended.
    pub fn ended(&self) -> &Ended {
        &self.recording.ended
    }

    /// Its calls.
    pub fn calls(&self) -> &[Exchange] {
        &self.recording.calls
    }

    /// Settings with the same grants, and nothing behind them.
    #[must_use]
    pub fn offline(settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        settings.grants.provided = settings.grants.provided.offline();
        settings.concurrency = 1;
        settings.reuse = 1;
        settings.record_answers = false;
        settings
    }

    /// The same, for a backtrace that names lines of source. They are lines of the component itself, and an attempt runs what
    /// is made of it: from a snapshot, with merged modules.
    #[must_use]
    pub fn with_lines(settings: &Settings) -> Settings {
        let mut settings = Self::offline(settings);
        settings.lines = true;
        settings.snapshot = false;
        settings.limits.log_tail = LINES_MAX;
        settings
    }

    /// Run it with this handler. `watch` is told of each call.
    pub async fn run(&self, sandbox: &Sandbox, watch: Option<Watch>) -> Again {
        let head = &self.recording.head;
        let track = Arc::new(Track::Plays(Player::new(&self.recording, watch)));
        let capture = Capture::default();
        // It stands for the one of the message: what it has is recorded.
        let journal = Session::new(Arc::<Memory>::default(), &Counts::default());
        let call = Call {
            message: &self.message,
            attempt: head.attempt,
            max_attempts: head.max_attempts,
            cancelled: &Arc::default(),
            logs: &LogSink::Capture(capture.clone()),
            trace: Traced::default(),
            began: std::time::Instant::now(),
            journal: Some(&journal),
            room: sandbox.room(),
        };
        let report = sandbox.play(&mut sandbox.slot(), call, &track).await;
        let ended = Ended::from(&report.outcome);
        let log = report.evidence.as_ref().and_then(|it| it.log.as_deref());
        let log = log.unwrap_or_default();
        let played = match &*track {
            Track::Plays(player) => player.played(),
            Track::Records(_) => Played::default(),
        };
        let is_same_handler = **sandbox.digest() == *self.handler();
        let tail = without_backtrace(log.lines());
        let has_same_settings = *sandbox.settings() == *head.settings;
        let (verdict, why) = match is_same_handler {
            true => self.compare(&ended, &tail, &played, has_same_settings),
            false => self.judge(&ended, &played),
        };
        let backtrace = log.lines().skip_while(|line| *line != BACKTRACE);
        Again {
            verdict,
            why,
            ended,
            lines: capture.take(),
            backtrace: backtrace.map(str::to_owned).collect(),
        }
    }

    /// The same handler: whether it ended as it did.
    fn compare(
        &self,
        ended: &Ended,
        log: &[String],
        played: &Played,
        has_same_settings: bool,
    ) -> (Verdict, Vec<String>) {
        let mut differences = Vec::new();
        if ended != self.ended() {
            differences.push(format!("it ended otherwise: {ended}"));
        }
        // A call without a recorded answer had none, or there was no room for it.
        let (open, other): (Vec<_>, Vec<_>) = (played.differences.iter())
            .partition(|it| matches!(it, Difference::Unrecorded(_, _, None)));
        differences.extend(other.into_iter().map(shown));
        let lines = self.log.iter().zip(log);
        let first = lines.take_while(|(then, now)| then == now).count();
        if self.log != log {
            let line = |log: &[String]| match log.get(first) {
                Some(line) => format!("`{line}`"),
                None => "nothing".to_owned(),
            };
            let (then, now) = (line(&self.log), line(log));
            differences.push(format!(
                "line {} of the end of its log is {now}, and was {then}",
                first + 1
            ));
        }
        if differences.is_empty() {
            return (Verdict::Same, Vec::new());
        }
        let mut doubts: Vec<String> = open.into_iter().map(shown).collect();
        doubts.extend(self.unknown(played));
        let head = &self.recording.head;
        if !self.recording.fresh {
            doubts.push("its instance had handled other messages before, and their traces in it are not recorded".to_owned());
        }
        if head.messages > 1 {
            doubts.push(format!(
                "it was one of the {} messages of a batch, and runs alone here",
                head.messages
            ));
        }
        if !has_same_settings {
            doubts.push("the settings are not those of the attempt: name the file of the queue with `--config`".to_owned());
        }
        let verdict = match doubts.is_empty() {
            true => Verdict::Differs,
            false => Verdict::CannotTell,
        };
        differences.extend(doubts);
        (verdict, differences)
    }

    /// Another handler: whether it acks.
    fn judge(&self, ended: &Ended, played: &Played) -> (Verdict, Vec<String>) {
        let is_ack = ended.outcome == "ack";
        let unrecorded = played.differences.iter();
        let unrecorded = unrecorded.filter(|it| matches!(it, Difference::Unrecorded(..)));
        let mut why: Vec<String> = unrecorded.map(shown).collect();
        // Whatever a secret is, a fault that came without one is a fault.
        why.extend(self.unknown(played));
        let verdict = match (why.is_empty(), is_ack) {
            (false, _) => Verdict::CannotTell,
            (true, true) => Verdict::Passes,
            (true, false) => Verdict::Fails,
        };
        if !is_ack {
            why.insert(0, ended.to_string());
        }
        (verdict, why)
    }

    /// What the recording does not have, and the attempt asked for.
    fn unknown(&self, played: &Played) -> Vec<String> {
        let mut unknown = Vec::new();
        let asks_more = played.beyond > 0
            || (played.differences.iter()).any(|it| matches!(it, Difference::Unrecorded(..)));
        if let Some(calls) = self.recording.left_out.filter(|_| asks_more) {
            unknown.push(format!("the recording is cut: there was no room for its last {calls} calls, and for what it read later"));
        }
        let hidden = self.recording.hidden.union(&played.secrets);
        unknown.extend(hidden.map(|name| format!("the secret `{name}` is not recorded")));
        unknown
    }
}

fn shown(difference: &Difference) -> String {
    match difference {
        Difference::Unrecorded(number, call, None) => {
            format!("call {number}, `{call}`, has no recorded answer")
        }
        Difference::Unrecorded(number, call, Some(instead)) => {
            format!("call {number} is `{call}`, and was `{instead}`")
        }
        Difference::NotMade(number, call) => format!("it did not make call {number}, `{call}`"),
    }
}

fn without_backtrace<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lines = lines.take_while(|line| *line != BACKTRACE);
    lines.map(str::to_owned).collect()
}
