//! The instructions of a message for its handler at each attempt, in the language of the scripted guests.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// How an attempt ends, if nothing interrupts it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Answer {
    /// It acknowledges.
    Ack,
    /// It asks for another attempt, after this number of milliseconds.
    Nack(u32),
    /// It drops the message.
    Drop,
    /// It drops the message, and says how many messages its instance has seen.
    Count,
    /// It traps.
    Trap,
    /// It runs for ever, until its CPU time is over.
    Loop,
    /// It takes more memory than it may.
    Grow,
    /// It answers more than it may.
    Reply,
}

/// What an answer means for the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is done.
    Acked,
    /// It is dead-lettered as dropped.
    Dropped,
    /// It is tried again, if attempts are left.
    Failed,
}

impl Answer {
    /// What it means.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Ack => Verdict::Acked,
            Self::Drop | Self::Count => Verdict::Dropped,
            _ => Verdict::Failed,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Ack => "ack".to_owned(),
            Self::Nack(ms) => format!("nack:{ms}"),
            Self::Drop => "drop:no".to_owned(),
            Self::Count => "count".to_owned(),
            Self::Trap => "trap".to_owned(),
            Self::Loop => "loop".to_owned(),
            Self::Grow => "grow:200".to_owned(),
            Self::Reply => "reply:3000000".to_owned(),
        }
    }
}

/// One attempt.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Step {
    /// How long it waits, in milliseconds.
    pub sleep_ms: u32,
    /// How it ends.
    pub answer: Answer,
}

/// All attempts of a message: attempt 1 takes the first step, and so on; the last one repeats.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Script {
    /// At least one.
    pub steps: Vec<Step>,
    /// How many bytes of padding follow.
    pub padding: u32,
    /// Whether each attempt says at its begin and at its end which version it is.
    pub says_version: bool,
    /// Whether each attempt kills its host at its verdict.
    pub kills_host: bool,
}

/// What the handler writes before it answers.
pub const END: &str = "end";

impl Script {
    /// One step, at every attempt.
    #[must_use]
    pub fn always(answer: Answer) -> Self {
        Self::of(&[answer])
    }

    /// These answers, one for each attempt, at once.
    #[must_use]
    pub fn of(answers: &[Answer]) -> Self {
        let step = |&answer| Step {
            sleep_ms: 0,
            answer,
        };
        Self {
            steps: answers.iter().map(step).collect(),
            padding: 0,
            says_version: false,
            kills_host: false,
        }
    }

    /// What an attempt does. Attempts are numbered from 1.
    #[must_use]
    pub fn step(&self, attempt: u32) -> Step {
        let position = (attempt.max(1) as usize - 1).min(self.steps.len().saturating_sub(1));
        self.steps.get(position).copied().unwrap_or(Step {
            sleep_ms: 0,
            answer: Answer::Ack,
        })
    }

    /// What an attempt means for the message, if it gets to its end. An attempt that kills its host fails.
    #[must_use]
    pub fn verdict(&self, attempt: u32) -> Verdict {
        match self.kills_host {
            true => Verdict::Failed,
            false => self.step(attempt).answer.verdict(),
        }
    }

    /// The last attempt, and its verdict, if nothing interferes and a message gets `cap` attempts.
    #[must_use]
    pub fn end(&self, cap: u32) -> (u32, Verdict) {
        let mut attempts = (1..=cap).map(|attempt| (attempt, self.verdict(attempt)));
        attempts
            .find(|(_, verdict)| *verdict != Verdict::Failed)
            .unwrap_or((cap, Verdict::Failed))
    }

    /// The body of the message.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let step = |step: &Step| {
            let version = if self.says_version { "version+" } else { "" };
            let sleep = match step.sleep_ms {
                0 => String::new(),
                ms => format!("sleep:{ms}+"),
            };
            format!(
                "{version}{sleep}{version}text:{END}+{}",
                step.answer.words()
            )
        };
        let steps: Vec<String> = self.steps.iter().map(step).collect();
        let mut body = steps.join(",").into_bytes();
        // White space at the end of a script means nothing; that of two messages differs.
        let mut random = Rng::with_seed(u64::from(self.padding));
        body.extend((0..self.padding).map(|_| if random.bool() { b' ' } else { b'\t' }));
        body
    }
}

/// Which scripts are drawn, and how long their attempts take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Mix {
    /// Attempts wait up to this number of milliseconds.
    pub sleep_ms: u32,
    /// Whether handlers fail: nacks, drops, traps, loops and limits. Without, all acknowledge.
    pub fails: bool,
    /// Whether some messages are large, up to this many bytes; 0 = none.
    pub large: u32,
    /// Whether handlers say their version.
    pub says_version: bool,
    /// One in this number of messages kills its host at each start; 0 = none.
    pub killers: u32,
    /// Whether handlers that always fail, or run into a limit, are twenty times rarer: they take most of the time.
    pub brisk: bool,
    /// Behind this number of messages, attempts wait [`SLOW_MS`] longer; 0 = none does.
    pub slow_after: u32,
}

/// How long an attempt waits that has become slow, in milliseconds.
pub const SLOW_MS: u32 = 300;

impl Mix {
    /// Handlers that only acknowledge, after up to 5 ms.
    pub const ACKS: Self = Self {
        sleep_ms: 5,
        fails: false,
        large: 0,
        says_version: false,
        killers: 0,
        brisk: false,
        slow_after: 0,
    };
    /// All that handlers do.
    pub const ALL: Self = Self {
        sleep_ms: 20,
        fails: true,
        large: 16 << 10,
        says_version: false,
        killers: 0,
        brisk: false,
        slow_after: 0,
    };

    /// A script of this mix.
    #[must_use]
    pub fn draw(&self, random: &mut Rng) -> Script {
        use Answer::{Ack, Count, Drop, Grow, Loop, Nack, Reply, Trap};
        let nack = Nack(random.u32(0..80));
        let number = random.u32(0..1000);
        let is_slow = matches!(number, 150..190 | 220..247);
        let answers = match number {
            _ if !self.fails => vec![Ack],
            _ if self.brisk && is_slow && random.u8(0..20) > 0 => vec![Ack],
            0..100 => {
                let mut answers = vec![nack; random.usize(1..3)];
                answers.push(Ack);
                answers
            }
            100..140 => vec![Drop],
            140..150 => vec![Count],
            150..190 => vec![nack],
            190..220 => vec![Trap, Ack],
            220..230 => vec![Trap],
            230..233 => vec![Loop, Ack],
            233..240 => vec![Grow, Ack],
            240..247 => vec![Reply, Ack],
            _ => vec![Ack],
        };
        let mut script = Script::of(&answers);
        for step in &mut script.steps {
            // Most handlers are quick.
            step.sleep_ms = match random.bool() {
                true => random.u32(0..=self.sleep_ms),
                false => 0,
            };
        }
        if self.large > 0 && random.u32(0..20) == 0 {
            // As many small ones as large ones, by their logarithm.
            let bits = random.u32(0..=self.large.max(2).ilog2());
            script.padding = random.u32(0..=1 << bits);
        }
        script.says_version = self.says_version;
        if self.killers > 0 && random.u32(0..self.killers) == 0 {
            script = Script::always(Ack);
            script.kills_host = true;
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_ends_at_its_first_answer_that_is_no_failure() {
        let script = Script::of(&[Answer::Nack(5), Answer::Trap, Answer::Ack]);
        assert_eq!(script.end(5), (3, Verdict::Acked));
        assert_eq!(script.end(2), (2, Verdict::Failed));
        assert_eq!(Script::always(Answer::Count).end(5), (1, Verdict::Dropped));
        assert_eq!(script.body(), b"text:end+nack:5,text:end+trap,text:end+ack");
    }

    #[test]
    fn a_seed_draws_the_same_scripts_again() {
        let drawn = |seed| {
            let mut random = Rng::with_seed(seed);
            let scripts: Vec<Script> = (0..500).map(|_| Mix::ALL.draw(&mut random)).collect();
            scripts
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        // Each of the verdicts is among them.
        for verdict in [Verdict::Acked, Verdict::Dropped, Verdict::Failed] {
            assert!(drawn(7).iter().any(|script| script.end(6).1 == verdict));
        }
    }
}
