//! The messages of a queue that are not settled, page by page. It begins where messages come in, so that one that moves on
//! meanwhile is found further on; one that goes back may be missed, or found twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use redis::{Pipeline, cmd};

use hostler_core::delivery::message::{DeliveryId, Headers};
use hostler_core::delivery::millis::millis;
use hostler_core::wire::decoded::message_id;
use hostler_core::wire::delayed::TOKEN_LEN;
use hostler_core::wire::entry_id::{entry_id, parse_entry_id};
use hostler_core::wire::{dead_letter, frame, keys, stream};
use hostler_redis::Error as RedisError;
use hostler_redis::reply::{self, Info};

use super::{CancelError, Canceller, Kind};

/// How many messages are read at once.
const PAGE: usize = 256;
/// The most instances of a list that are looked at.
const INSTANCES_MAX: usize = 10_000;
/// The most settled entries among which an id is looked for, the newest ones.
const SETTLED_MAX: usize = 10_000;

/// Where a message is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// An entry of a stream.
    Entry(String),
    /// A member of the delayed messages: a token, and the message.
    Delayed(Bytes),
    /// A value of this list.
    Value(String, Bytes),
    /// A value that this instance has: a token, and the value.
    Held(String, Bytes),
}

impl Place {
    /// The id of an entry, or of a delivery.
    pub(super) fn id(&self) -> Option<String> {
        match self {
            Self::Entry(id) => Some(id.clone()),
            Self::Delayed(entry) | Self::Held(_, entry) => {
                let token = entry.first_chunk::<TOKEN_LEN>()?;
                Some(format!("{:032x}", u128::from_be_bytes(*token)))
            }
            Self::Value(..) => None,
        }
    }

    /// What stands in Redis, and the value or the fields in it.
    pub(super) fn value(&self) -> (Bytes, Bytes) {
        match self {
            Self::Entry(_) => Default::default(),
            Self::Value(_, value) => (value.clone(), value.clone()),
            Self::Delayed(entry) | Self::Held(_, entry) => {
                (entry.clone(), entry.slice(TOKEN_LEN.min(entry.len())..))
            }
        }
    }
}

/// A message that is not settled, or was not when it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its id; empty if it has none yet.
    pub id: String,
    /// Its headers.
    pub headers: Headers,
    pub(super) fields: Vec<(Bytes, Bytes)>,
    pub(super) place: Place,
}

impl Found {
    fn new(place: Place, headers: Headers, fields: Vec<(Bytes, Bytes)>) -> Self {
        let own = message_id(&headers).map(str::to_owned);
        Self {
            id: own.or_else(|| place.id()).unwrap_or_default(),
            headers,
            fields,
            place,
        }
    }

    /// An entry with this id that is not in the stream; `None` = no entry has such an id.
    pub(super) fn missing(id: &str) -> Option<Self> {
        parse_entry_id(id)?;
        Some(Self::new(
            Place::Entry(id.to_owned()),
            Headers::default(),
            Vec::new(),
        ))
    }

    pub(super) fn entry(&self) -> Option<&str> {
        match &self.place {
            Place::Entry(id) => Some(id),
            _ => None,
        }
    }

    pub(super) fn is(&self, id: &str) -> bool {
        self.id == id || self.place.id().as_deref() == Some(id)
    }

    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// When it came to its queue, in epoch milliseconds, if that is known: a list does not say so.
    pub fn at_ms(&self) -> Option<u64> {
        parse_entry_id(self.entry()?).map(|(_, ms)| ms)
    }

    /// How its journal is called on a list.
    pub(super) fn journal(&self) -> String {
        let named = self.headers.find_str(dead_letter::JOURNAL);
        named.map_or_else(|| self.place.id().unwrap_or_default(), str::to_owned)
    }
}

#[derive(Debug)]
enum Stage {
    /// Delayed messages, and how many stay behind.
    Delayed(usize),
    /// Entries behind this one.
    Unread(String),
    /// Entries that this group has pending, behind this one.
    Pending(String, String),
    /// Values of this list, from its end, and how many stay behind.
    Values(String, usize),
    /// Values that this instance has.
    Held(String, usize),
}

/// Looks at the messages of a queue that are not settled.
#[derive(Debug)]
pub struct Scan<'a> {
    of: &'a Canceller,
    stages: VecDeque<Stage>,
    /// Entries behind it came after the scan began.
    last: Option<DeliveryId>,
    looked_at: u64,
}

impl Canceller {
    /// Look at the messages that are not settled, in [`Canceller::group`] or in all groups.
    ///
    /// # Errors
    /// [`CancelError::Redis`].
    pub async fn scan(&self) -> Result<Scan<'_>, CancelError> {
        self.time.read(&self.link).await?;
        let mut stages = VecDeque::new();
        let mut last = None;
        if self.kind != (Kind::List { reliable: false }) {
            stages.push_back(Stage::Delayed(0));
        }
        match self.kind {
            Kind::Stream => {
                let groups = self.groups().await?;
                let wanted = groups.iter();
                let wanted = wanted.filter(|(name, _)| self.is_wanted(name));
                let delivered = wanted.clone().map(|(_, last)| *last);
                let from = delivered.min().unwrap_or(DeliveryId(0));
                stages.push_back(Stage::Unread(entry_id(from)));
                for (name, _) in wanted {
                    stages.push_back(Stage::Pending(name.clone(), "-".to_owned()));
                }
                last = Some(self.last_entry().await?);
            }
            Kind::List { reliable } => {
                stages.push_back(Stage::Values(self.key.clone(), 0));
                if reliable {
                    stages.push_back(Stage::Values(keys::retry(&self.key), 0));
                    const COMMAND: &str = "ZRANGE";
                    let mut all = cmd(COMMAND);
                    all.arg(keys::instances(&self.key));
                    all.arg(0).arg(INSTANCES_MAX - 1);
                    for name in reply::values(COMMAND, self.link.call(COMMAND, &all).await?)? {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        stages.push_back(Stage::Held(name, 0));
                    }
                }
            }
        }
        Ok(Scan {
            of: self,
            stages,
            last,
            looked_at: 0,
        })
    }

    /// The one group of which all messages can be cancelled.
    ///
    /// # Errors
    /// [`CancelError::Groups`] if there are several, and none is named.
    pub async fn sole_group(self) -> Result<Self, CancelError> {
        if self.kind != Kind::Stream || self.group.is_some() {
            return Ok(self);
        }
        let mut names: Vec<String> = self.groups().await?.into_iter().map(|g| g.0).collect();
        if names.len() > 1 {
            return Err(CancelError::Groups(names));
        }
        Ok(self.group(names.pop()))
    }

    fn is_wanted(&self, group: &str) -> bool {
        self.group.as_deref().is_none_or(|wanted| wanted == group)
    }

    /// The groups of the stream, and the last entry that each has handed out.
    pub(super) async fn groups(&self) -> Result<Vec<(String, DeliveryId)>, RedisError> {
        const COMMAND: &str = "XINFO GROUPS";
        let mut ask = cmd("XINFO");
        ask.arg("GROUPS").arg(&self.key);
        let groups = match self.link.call(COMMAND, &ask).await {
            // There is no stream.
            Err(error) if error.to_string().contains("no such key") => return Ok(Vec::new()),
            answer => reply::array(COMMAND, answer?)?,
        };
        let group = |info| {
            let mut info = Info::new(COMMAND, info)?;
            let last = info.text("last-delivered-id")?;
            let last = parse_entry_id(&last).map_or(DeliveryId(0), |(id, _)| id);
            Ok((info.text("name")?, last))
        };
        groups.into_iter().map(group).collect()
    }

    async fn last_entry(&self) -> Result<DeliveryId, RedisError> {
        let last = self.range("XREVRANGE", "+", "-", 1).await?;
        let last = last.first().and_then(|(id, _)| parse_entry_id(id));
        Ok(last.map_or(DeliveryId(0), |(id, _)| id))
    }

    /// The entry of a stream with this id, settled or not.
    pub(super) async fn entry(&self, id: &str) -> Result<Option<Found>, RedisError> {
        if self.kind != Kind::Stream || parse_entry_id(id).is_none() {
            return Ok(None);
        }
        let found = self.range("XRANGE", id, id, 1).await?.pop();
        Ok(
            found
                .map(|(id, fields)| Found::new(Place::Entry(id), stream::headers(&fields), fields)),
        )
    }

    /// The message with this id among the newest entries of the stream.
    pub(super) async fn settled(&self, id: &str) -> Result<Option<Found>, RedisError> {
        let (mut from, mut left) = ("+".to_owned(), SETTLED_MAX);
        while self.kind == Kind::Stream && left > 0 {
            let page = self.range("XREVRANGE", &from, "-", PAGE).await?;
            let Some((last, _)) = page.last() else {
                break;
            };
            from = format!("({last}");
            left = left.saturating_sub(page.len());
            for (entry, fields) in page {
                let found = Found::new(Place::Entry(entry), stream::headers(&fields), fields);
                if found.is(id) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    async fn range(
        &self,
        command: &'static str,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<(String, Vec<(Bytes, Bytes)>)>, RedisError> {
        let mut read = cmd(command);
        read.arg(&self.key)
            .arg(from)
            .arg(to)
            .arg("COUNT")
            .arg(count);
        let entries = reply::array(command, self.link.call(command, &read).await?)?;
        let entry = |entry| {
            let [id, fields] = reply::tuple(command, entry)?;
            Ok((reply::text(command, id)?, reply::fields(command, fields)?))
        };
        entries.into_iter().map(entry).collect()
    }

    /// The bodies of these entries; those that are gone have no fields.
    async fn bodies(&self, ids: Vec<String>) -> Result<Vec<Found>, RedisError> {
        const COMMAND: &str = "XRANGE";
        let mut read = Pipeline::new();
        for id in &ids {
            read.cmd(COMMAND).arg(&self.key).arg(id).arg(id);
        }
        let answers = self.link.pipeline(COMMAND, &read).await?;
        let mut found = Vec::with_capacity(ids.len());
        for (id, answer) in ids.into_iter().zip(answers) {
            let entry = reply::array(COMMAND, reply::accepted(COMMAND, answer)?)?.pop();
            let fields = match entry {
                Some(entry) => {
                    let [_, fields] = reply::tuple(COMMAND, entry)?;
                    reply::fields(COMMAND, fields)?
                }
                None => Vec::new(),
            };
            let headers = stream::headers(&fields);
            found.push(Found::new(Place::Entry(id), headers, fields));
        }
        Ok(found)
    }

    fn of_value(&self, place: Place) -> Found {
        let (headers, ..) = self.read(&place);
        Found::new(place, headers, Vec::new())
    }

    fn of_delayed(&self, member: Bytes) -> Found {
        let place = Place::Delayed(member);
        if self.kind != Kind::Stream {
            return self.of_value(place);
        }
        // The fields of an entry: as many as can be read.
        let (_, fields) = place.value();
        let mut at = size_of::<u32>();
        let mut next = || {
            let (text, behind) = frame::read_text(&fields, at)?;
            at = behind;
            Some(fields.slice(text))
        };
        let mut read = Vec::new();
        while let (Some(name), Some(value)) = (next(), next()) {
            read.push((name, value));
        }
        Found::new(place, stream::headers(&read), read)
    }
}

impl Scan<'_> {
    /// How many messages it has looked at.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// So many of the last page are cancelled: what was behind them stands in their place.
    pub fn removed(&mut self, count: usize) {
        if let Some(Stage::Delayed(at) | Stage::Values(_, at) | Stage::Held(_, at)) =
            self.stages.front_mut()
        {
            *at = at.saturating_sub(count);
        }
    }

    /// Whether a message came at least so long ago, by the server's clock.
    pub fn is_older(&self, found: &Found, than: Duration) -> bool {
        let now = self.of.time.now_ms();
        let came = found.at_ms();
        came.is_some_and(|at| at.saturating_add(millis(than)) <= now)
    }

    /// The next page; it may be empty. `None` at the end.
    ///
    /// # Errors
    /// [`RedisError`]. The next call goes on.
    pub async fn next(&mut self) -> Result<Option<Vec<Found>>, RedisError> {
        let of = self.of;
        let (page, is_over) = match self.stages.front_mut() {
            None => return Ok(None),
            Some(Stage::Delayed(at)) => {
                const COMMAND: &str = "ZRANGE";
                let mut read = cmd(COMMAND);
                read.arg(keys::delayed(&of.key))
                    .arg(*at)
                    .arg(*at + PAGE - 1);
                let page = reply::values(COMMAND, of.link.call(COMMAND, &read).await?)?;
                *at += page.len();
                let is_over = page.len() < PAGE;
                (
                    page.into_iter()
                        .map(|m| of.of_delayed(m))
                        .collect::<Vec<_>>(),
                    is_over,
                )
            }
            Some(Stage::Unread(from)) => {
                let mut page = of.range("XRANGE", &format!("({from}"), "+", PAGE).await?;
                let is_full = page.len() == PAGE;
                page.retain(|(id, _)| parse_entry_id(id).map(|(id, _)| id) <= self.last);
                let is_over = !is_full || page.len() < PAGE;
                if let Some((last, _)) = page.last() {
                    from.clone_from(last);
                }
                let found = page.into_iter().map(|(id, fields)| {
                    Found::new(Place::Entry(id), stream::headers(&fields), fields)
                });
                (found.collect(), is_over)
            }
            Some(Stage::Pending(group, from)) => {
                const COMMAND: &str = "XPENDING";
                let mut read = cmd(COMMAND);
                read.arg(&of.key).arg(&*group);
                read.arg(&*from).arg("+").arg(PAGE);
                let mut ids = Vec::new();
                for held in reply::array(COMMAND, of.link.call(COMMAND, &read).await?)? {
                    let [id, ..] = reply::tuple::<4>(COMMAND, held)?;
                    ids.push(reply::text(COMMAND, id)?);
                }
                let is_over = ids.len() < PAGE;
                if let Some(last) = ids.last() {
                    *from = format!("({last}");
                }
                (of.bodies(ids).await?, is_over)
            }
            Some(Stage::Values(key, at)) => {
                let page = of.values_at(key, at).await?;
                let found = page
                    .iter()
                    .map(|v| of.of_value(Place::Value(key.clone(), v.clone())));
                (found.collect(), page.len() < PAGE)
            }
            Some(Stage::Held(instance, at)) => {
                let key = keys::processing(&of.key, instance);
                let page = of.values_at(&key, at).await?;
                let found = page
                    .iter()
                    .map(|v| of.of_value(Place::Held(instance.clone(), v.clone())));
                (found.collect(), page.len() < PAGE)
            }
        };
        self.looked_at += page.len() as u64;
        if is_over {
            self.stages.pop_front();
        }
        Ok(Some(page))
    }
}

impl Canceller {
    /// Values of a list, those that came first.
    async fn values_at(&self, key: &str, at: &mut usize) -> Result<Vec<Bytes>, RedisError> {
        const COMMAND: &str = "LRANGE";
        let mut read = cmd(COMMAND);
        let (first, last) = (-(*at as i64 + PAGE as i64), -(*at as i64 + 1));
        read.arg(key).arg(first).arg(last);
        let mut page = reply::values(COMMAND, self.link.call(COMMAND, &read).await?)?;
        page.reverse();
        *at += page.len();
        Ok(page)
    }
}
