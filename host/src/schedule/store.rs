//! The schedules of a queue in Redis: definitions and records in one hash, next ticks in a sorted set, both in the slot of
//! the queue.
//!
//! | call | dies before the script | dies behind it, or its reply is lost |
//! |---|---|---|
//! | [`Store::define`] | the definitions are as before: the host writes them when it starts again | a repeat writes the same |
//! | [`Store::tick`] | the tick is still due: any host publishes it | a repeat finds another next tick |
//! | [`Store::reckon`] | the ticks are those of older zone data: the next look finds that | the same, or nothing is left to do |
//! | [`Store::run`] | nothing was asked for | a repeat has the same token |
//! | the others | nothing has changed | a repeat changes nothing more |

use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value, cmd};
use serde::Deserialize;

use crate::outgoing::effects::add;
use crate::outgoing::write::Write;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::schedule::definition::{CLI, Defined, Definition, SCHEDULES_MAX};
use crate::schedule::scripts::{
    SCHEDULE_AGAIN, SCHEDULE_CHANGE, SCHEDULE_DEFINE, SCHEDULE_LIST, SCHEDULE_LOOK, SCHEDULE_TICK,
};
use crate::schedule::ticks::{Plan, zone_data};
use crate::wire::keys;

/// So begins the member of a run by hand.
const RUN: &str = "run ";

/// The schedules of one queue.
#[derive(Clone, Debug)]
pub struct Store {
    link: Arc<Link>,
    queue: String,
    hash: String,
    ticks: String,
}

/// What is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Look {
    /// Now, by the clock of the server, in epoch milliseconds.
    pub now_ms: u64,
    /// The oldest zone data that a next tick was computed with; empty = there is no schedule.
    pub zones: String,
    /// The first tick to come.
    pub next_ms: Option<u64>,
    /// What is due, the oldest first.
    pub due: Vec<Due>,
}

/// A tick that is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Due {
    /// The schedule.
    pub name: String,
    /// The tick.
    pub tick: u64,
    /// An operator asked for it.
    pub is_run: bool,
}

/// A schedule, as it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The text of its definition: a change of it is another definition.
    pub text: String,
    /// The definition; `None` = it cannot be read.
    pub definition: Option<Definition>,
    /// The body of its messages.
    pub body: Bytes,
}

/// What became of a schedule. Hosts of a later release may write more.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct Record {
    /// All ticks up to here are handled.
    pub base: u64,
    /// It has no ticks until it is resumed.
    pub paused: bool,
    /// The last tick that was published.
    pub tick: Option<u64>,
    /// When that was.
    pub at: Option<u64>,
    /// The id of its message.
    pub id: Option<String>,
    /// The last run by hand: when it was asked for, and its id.
    pub run: Option<(u64, String)>,
    /// How many messages it has published.
    pub published: u64,
    /// How many ticks were missed.
    pub missed: u64,
    /// How many were skipped, because the message before was not settled.
    pub skipped: u64,
}

/// A schedule in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The text of its definition.
    pub text: String,
    /// The definition; `None` = it cannot be read.
    pub definition: Option<Definition>,
    /// What became of it.
    pub record: Record,
    /// Its next tick.
    pub next_ms: Option<u64>,
}

/// What became of definitions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// The names that another source keeps.
    pub taken: Vec<String>,
    /// The names that are removed.
    pub removed: Vec<String>,
    /// There are too many schedules, and nothing was written.
    pub is_full: bool,
}

/// What became of a tick.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ticked {
    /// Another host has done it, or the definition has changed: look again.
    Moved,
    /// The clock of the server was set back.
    Early,
    /// The next tick is set.
    Done {
        /// How many messages were published.
        published: u64,
        /// How many ticks were skipped.
        skipped: u64,
        /// Why the next message was refused.
        refused: Option<String>,
    },
}

/// What became of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Changed {
    /// It is done.
    Done,
    /// There is no such schedule.
    Unknown,
    /// The definition has changed meanwhile: look again.
    Again,
}

impl Store {
    /// The schedules of this queue.
    pub fn new(link: Arc<Link>, queue: &str) -> Self {
        Self {
            link,
            queue: queue.to_owned(),
            hash: keys::schedules(queue),
            ticks: keys::ticks(queue),
        }
    }

    fn call(&self, script: &'static Script) -> Cmd {
        script.on(&[&self.hash, &self.ticks])
    }

    /// What is due now.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn look(&self) -> Result<Look, Error> {
        let script = &SCHEDULE_LOOK;
        let name = script.name();
        let answer = self.link.run(script, &self.call(script)).await?;
        let mut answer = reply::array(name, answer)?.into_iter();
        let mut next = || answer.next().unwrap_or(Value::Nil);
        let now_ms = reply::count(name, &next())?;
        let zones = reply::text(name, next())?;
        let first = reply::integer(name, &next())?;
        let mut due = Vec::new();
        while let (Some(member), Some(tick)) = (answer.next(), answer.next()) {
            let member = reply::text(name, member)?;
            let run = member.strip_prefix(RUN);
            due.push(Due {
                name: run.unwrap_or(&member).to_owned(),
                is_run: run.is_some(),
                tick: reply::count(name, &tick)?,
            });
        }
        Ok(Look {
            now_ms,
            zones,
            next_ms: u64::try_from(first).ok(),
            due,
        })
    }

    /// A number that changes with the number of schedules.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn size(&self) -> Result<u64, Error> {
        self.link.count("HLEN", &self.hash).await
    }

    /// All schedules, by name, and the time of the server.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn all(&self) -> Result<(u64, Vec<Listed>), Error> {
        let script = &SCHEDULE_LIST;
        let name = script.name();
        let answer = self.link.run(script, &self.call(script)).await?;
        let mut answer = reply::array(name, answer)?.into_iter();
        let now_ms = reply::count(name, &answer.next().unwrap_or(Value::Nil))?;
        let mut all = Vec::new();
        while let (Some(schedule), Some(text), Some(record), Some(next)) =
            (answer.next(), answer.next(), answer.next(), answer.next())
        {
            let text = reply::text(name, text)?;
            let record = reply::text(name, record)?;
            all.push(Listed {
                name: reply::text(name, schedule)?,
                definition: serde_json::from_str(&text).ok(),
                text,
                record: serde_json::from_str(&record).unwrap_or_default(),
                next_ms: u64::try_from(reply::integer(name, &next)?).ok(),
            });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((now_ms, all))
    }

    /// One schedule with its body; `None` = there is none.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn read(&self, name: &str) -> Result<Option<Kept>, Error> {
        const COMMAND: &str = "HMGET";
        let mut read = cmd(COMMAND);
        read.arg(&self.hash);
        read.arg(format!("d:{name}")).arg(format!("b:{name}"));
        let [text, body] = reply::tuple(COMMAND, self.link.call(COMMAND, &read).await?)?;
        if text == Value::Nil {
            return Ok(None);
        }
        let text = reply::text(COMMAND, text)?;
        let body = match body {
            Value::Nil => Bytes::new(),
            body => reply::bytes(COMMAND, body)?,
        };
        Ok(Some(Kept {
            definition: serde_json::from_str(&text).ok(),
            text,
            body,
        }))
    }

    /// Write all definitions of a file. Others that this file had are removed; those of [`CLI`] stay.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn define(&self, source: &str, defined: &[Defined]) -> Result<Written, Error> {
        self.write(source, "all", defined).await
    }

    /// Write one definition that no file has.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn add(&self, defined: &Defined) -> Result<Written, Error> {
        self.write(CLI, "one", std::slice::from_ref(defined)).await
    }

    async fn write(&self, source: &str, mode: &str, defined: &[Defined]) -> Result<Written, Error> {
        let script = &SCHEDULE_DEFINE;
        let base = self.look().await?.now_ms;
        let mut call = self.call(script);
        call.arg(source).arg(mode).arg(zone_data());
        call.arg(base).arg(SCHEDULES_MAX);
        for one in defined {
            // Its file was checked by this hostler: there is a next tick.
            let next = one.definition.timing().ok();
            let next = next.and_then(|timing| timing.after(base)).unwrap_or(base);
            call.arg(&one.name).arg(one.definition.text());
            call.arg(&one.body[..]).arg(next);
        }
        let answer = self.link.run(script, &call).await?;
        if !matches!(answer, Value::Array(_)) {
            return Ok(Written {
                is_full: true,
                ..Written::default()
            });
        }
        let [taken, removed] = reply::tuple(script.name(), answer)?;
        let names = |value| {
            let names = reply::array(script.name(), value)?.into_iter();
            let names = names.map(|name| reply::text(script.name(), name));
            names.collect::<Result<Vec<_>, _>>()
        };
        Ok(Written {
            taken: names(taken)?,
            removed: names(removed)?,
            is_full: false,
        })
    }

    /// Publish the ticks of this plan, and set the next one. `writes` are one for each tick, with its id.
    ///
    /// # Errors
    /// Any error of Redis.
    pub(crate) async fn tick(
        &self,
        due: &Due,
        kept: (&str, Option<&str>),
        plan: &Plan,
        writes: &[(String, Write)],
    ) -> Result<Ticked, Error> {
        let script = &SCHEDULE_TICK;
        let (text, skip_in) = kept;
        let delayed = keys::delayed(&self.queue);
        let mut call = script.on(&[&self.hash, &self.ticks, &self.queue, &delayed]);
        let run = if due.is_run { RUN } else { "" };
        call.arg(format!("{run}{}", due.name)).arg(&due.name);
        call.arg(text).arg(due.tick);
        match plan.next.filter(|_| !due.is_run) {
            Some(next) => call.arg(next),
            None => call.arg(""),
        };
        call.arg(plan.base).arg(zone_data()).arg(plan.missed);
        call.arg(skip_in.filter(|_| !due.is_run).unwrap_or_default());
        for (tick, (id, write)) in plan.publish.iter().zip(writes) {
            let place = if matches!(write, Write::Later(_)) {
                4
            } else {
                3
            };
            // One write.
            call.arg(tick).arg(id).arg(1);
            add(write, place, &mut call);
        }
        let answer = self.link.run(script, &call).await?;
        let Value::Array(_) = answer else {
            return Ok(match reply::text(script.name(), answer)?.as_str() {
                "early" => Ticked::Early,
                _ => Ticked::Moved,
            });
        };
        let [published, skipped, why] = reply::tuple(script.name(), answer)?;
        let why = reply::text(script.name(), why)?;
        Ok(Ticked::Done {
            published: reply::count(script.name(), &published)?,
            skipped: reply::count(script.name(), &skipped)?,
            refused: (!why.is_empty()).then(|| why.trim_start_matches('-').to_owned()),
        })
    }

    /// Compute the next ticks with the zone data of this hostler. A schedule that cannot be read stays as it is.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn reckon(&self) -> Result<(), Error> {
        let script = &SCHEDULE_AGAIN;
        let mut call = self.call(script);
        call.arg(zone_data());
        for one in self.all().await?.1 {
            let timing = one.definition.and_then(|known| known.timing().ok());
            let again = timing.and_then(|timing| timing.after(one.record.base));
            if let (Some(before), Some(again)) = (one.next_ms, again) {
                call.arg(one.name).arg(one.text).arg(before).arg(again);
            }
        }
        self.link.run(script, &call).await.map(drop)
    }

    /// Remove a schedule.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn remove(&self, name: &str) -> Result<Changed, Error> {
        self.change(&[name, "remove"]).await
    }

    /// Let a schedule have no ticks.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn pause(&self, name: &str) -> Result<Changed, Error> {
        self.change(&[name, "pause"]).await
    }

    /// Let it have ticks again, from now on: those of the pause are not missed.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn resume(&self, name: &str) -> Result<Changed, Error> {
        let Some(kept) = self.read(name).await? else {
            return Ok(Changed::Unknown);
        };
        let base = self.look().await?.now_ms;
        let timing = kept.definition.and_then(|known| known.timing().ok());
        // What cannot be read here is due at once: a host says so.
        let next = timing.and_then(|timing| timing.after(base)).unwrap_or(base);
        let [base, next] = [base, next].map(|ms| ms.to_string());
        let resume = [name, "resume", &kept.text, zone_data(), &base, &next];
        self.change(&resume).await
    }

    /// Ask for one message at once, beside the ticks; a host publishes it. Returns when it was asked for. A call with the
    /// same token asks for nothing more.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn run(&self, name: &str, token: &str) -> Result<Option<u64>, Error> {
        let script = &SCHEDULE_CHANGE;
        let mut call = self.call(script);
        call.arg(name).arg("run").arg(token);
        match self.link.run(script, &call).await? {
            answer @ Value::Int(_) => reply::count(script.name(), &answer).map(Some),
            _ => Ok(None),
        }
    }

    async fn change(&self, arguments: &[&str]) -> Result<Changed, Error> {
        let script = &SCHEDULE_CHANGE;
        let mut call = self.call(script);
        for argument in arguments {
            call.arg(*argument);
        }
        let answer = self.link.run(script, &call).await?;
        Ok(match reply::text(script.name(), answer)?.as_str() {
            "unknown" => Changed::Unknown,
            "changed" => Changed::Again,
            _ => Changed::Done,
        })
    }
}
