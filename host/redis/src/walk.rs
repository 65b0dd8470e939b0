//! Reading a queue in stretches that are bounded in bytes, however large its messages are: `dlq`, `trace` and `cancel` walk
//! with these. A message that is larger comes alone.

use bytes::Bytes;
use redis::cmd;
use tokio::task::yield_now;

use crate::connection::Link;
use crate::error::Error;
use crate::reply;
use crate::scripts::{WALK_PLACES, WALK_STREAM};

/// The most entries of a stretch.
pub const PAGE: usize = 256;
/// After how many bytes a stretch ends.
pub const PAGE_BYTES: usize = 4 << 20;

/// An entry of a stream: its id and its fields.
pub type Entry = (String, Vec<(Bytes, Bytes)>);

/// Which entries of a stream, and in which order.
#[derive(Clone, Debug)]
pub enum Order {
    /// The oldest first.
    Up,
    /// The newest first.
    Down,
    /// Those that this group has pending, the oldest first.
    Pending(String),
}

/// A walk through a stream. After an error, the next call goes on.
#[derive(Clone, Debug)]
pub struct Entries {
    key: String,
    order: Order,
    from: String,
    to: String,
    is_over: bool,
    /// Only these fields, in lower case, each cut at so many bytes; empty = whole entries.
    pub wanted: (Vec<String>, usize),
    /// Read whole entries by a plain command: it takes a quarter of the time, and has no bound but [`Entries::page`], which the
    /// caller sets by the size of the last ones.
    pub is_plain: bool,
    /// The most entries of the next stretch.
    pub page: usize,
    /// How many entries may still come.
    pub left: usize,
}

impl Entries {
    /// Through this stream, between these ids: in the order of the walk.
    pub fn new(key: impl Into<String>, order: Order, from: &str, to: &str) -> Self {
        Self {
            key: key.into(),
            order,
            from: from.to_owned(),
            to: to.to_owned(),
            is_over: false,
            wanted: (Vec::new(), 0),
            is_plain: false,
            page: PAGE,
            left: usize::MAX,
        }
    }

    /// The newest entries, newest first.
    pub fn newest(key: impl Into<String>) -> Self {
        Self::new(key, Order::Down, "+", "-")
    }

    /// At most so many entries.
    #[must_use]
    pub fn most(self, left: usize) -> Self {
        Self { left, ..self }
    }

    /// The next entries; none = the walk is over.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn next(&mut self, link: &Link) -> Result<Vec<Entry>, Error> {
        let most = self.page.min(self.left);
        if self.is_over || most == 0 {
            return Ok(Vec::new());
        }
        let (command, group) = match &self.order {
            Order::Up => ("XRANGE", ""),
            Order::Down => ("XREVRANGE", ""),
            Order::Pending(group) => ("XPENDING", group.as_str()),
        };
        let script = &WALK_STREAM;
        let (name, answer) = if self.is_plain {
            let mut read = cmd(command);
            read.arg(&self.key).arg(&self.from).arg(&self.to);
            read.arg("COUNT").arg(most);
            (command, link.call(command, &read).await?)
        } else {
            let mut call = script.on(&[&self.key]);
            call.arg(command).arg(&self.from).arg(&self.to).arg(group);
            call.arg(most).arg(PAGE_BYTES);
            call.arg(self.wanted.1).arg(&self.wanted.0);
            (script.name(), link.run(script, &call).await?)
        };
        let entries = reply::array(name, answer)?;
        // The requests of others go out before these are read.
        yield_now().await;
        let entry = |entry| {
            let [id, fields] = reply::tuple(name, entry)?;
            Ok((reply::text(name, id)?, reply::fields(name, fields)?))
        };
        let entries: Vec<Entry> = entries.into_iter().map(entry).collect::<Result<_, _>>()?;
        self.left -= entries.len().min(self.left);
        match entries.last() {
            // Redis refuses an interval behind the greatest id there is.
            Some((last, _)) if *last != self.to => self.from = format!("({last}"),
            _ => self.is_over = true,
        }
        Ok(entries)
    }
}

/// Which values have places, and in which order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Places {
    /// The values of a list, the oldest first.
    Oldest,
    /// The values of a list, the newest first.
    Newest,
    /// The members of a sorted set, the least scores first.
    Scores,
}

/// A walk through a list or a sorted set. Places move: what others take off it meanwhile makes it leave out as many.
#[derive(Clone, Debug)]
pub struct Values {
    key: String,
    places: Places,
    passed: u64,
    /// How many values may still come.
    pub left: usize,
}

/// A value and its score; of a list, 0.
pub type Scored = (Bytes, u64);

impl Values {
    /// Through this key.
    pub fn new(key: impl Into<String>, places: Places) -> Self {
        Self {
            key: key.into(),
            places,
            passed: 0,
            left: usize::MAX,
        }
    }

    /// At most so many values.
    #[must_use]
    pub fn most(self, left: usize) -> Self {
        Self { left, ..self }
    }

    /// So many that have come were removed: others stand in their places.
    pub fn removed(&mut self, count: usize) {
        self.passed = self.passed.saturating_sub(count as u64);
    }

    /// The next values; none = the walk is over.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn next(&mut self, link: &Link) -> Result<Vec<Scored>, Error> {
        let most = PAGE.min(self.left);
        if most == 0 {
            return Ok(Vec::new());
        }
        let (passed, most) = (self.passed, most as u64);
        let (values, _) = stretch(link, &self.key, self.places, (passed, most), &[]).await?;
        self.passed += values.len() as u64;
        self.left -= values.len().min(self.left);
        Ok(values)
    }
}

/// A stretch of a list or a sorted set: leave out so many, and read at most so many, up to the first mark there is.
/// Also returns how many are left before the end; `None` = no mark is there.
///
/// # Errors
/// Any error of Redis.
pub async fn stretch(
    link: &Link,
    key: &str,
    places: Places,
    (passed, most): (u64, u64),
    marks: &[Bytes],
) -> Result<(Vec<Scored>, Option<u64>), Error> {
    let script = &WALK_PLACES;
    let name = script.name();
    let mut call = script.on(&[key]);
    call.arg(match places {
        Places::Oldest => "right",
        Places::Newest => "left",
        Places::Scores => "set",
    });
    call.arg(passed).arg(most).arg(PAGE_BYTES);
    for mark in marks {
        call.arg(&mark[..]);
    }
    let [values, left] = reply::tuple(name, link.run(script, &call).await?)?;
    let values = match places {
        Places::Scores => reply::scored(name, values)?,
        _ => reply::values(name, values)?
            .into_iter()
            .map(|value| (value, 0))
            .collect(),
    };
    let left = u64::try_from(reply::integer(name, &left)?).ok();
    Ok((values, left))
}

/// The members of a sorted set whose scores change all the time, such as the instances of a list.
#[derive(Clone, Debug)]
pub struct Members {
    key: String,
    /// `None` = the walk is over.
    cursor: Option<u64>,
}

impl Members {
    /// Of this key.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            cursor: Some(0),
        }
    }

    /// The next members; there may be none, and one may come twice. `None` = the walk is over.
    ///
    /// # Errors
    /// Any error of Redis.
    pub async fn next(&mut self, link: &Link) -> Result<Option<Vec<String>>, Error> {
        const COMMAND: &str = "ZSCAN";
        let Some(cursor) = self.cursor else {
            return Ok(None);
        };
        let mut scan = cmd(COMMAND);
        scan.arg(&self.key).arg(cursor).arg("COUNT").arg(PAGE);
        let [next, members] = reply::tuple(COMMAND, link.call(COMMAND, &scan).await?)?;
        let next = reply::text(COMMAND, next)?;
        self.cursor = next.parse().ok().filter(|next| *next > 0);
        let names = reply::pairs(COMMAND, members)?.into_iter();
        let names = names.map(|(name, _)| reply::text(COMMAND, name));
        names.collect::<Result<_, _>>().map(Some)
    }
}
