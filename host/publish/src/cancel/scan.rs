//! The messages of a queue that are not settled, page by page. It begins where messages come in, so that one that moves on
//! meanwhile is found further on; one that goes back may be missed, or found twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use redis::cmd;

use hostler_core::delivery::message::{DeliveryId, Headers, MESSAGE_ID};
use hostler_core::delivery::millis::millis;
use hostler_core::wire::decoded::message_id;
use hostler_core::wire::delayed::{TOKEN_LEN, fields_of};
use hostler_core::wire::entry_id::{entry_id, parse_entry_id};
use hostler_core::wire::{dead_letter, keys, stream};
use hostler_redis::Error as RedisError;
use hostler_redis::reply::{self, Info};
use hostler_redis::walk::{Entries, Entry, Members, Order, Places, Values};

use super::{CancelError, Canceller, Kind};

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

    fn of_entry((id, fields): Entry) -> Self {
        Self::new(Place::Entry(id), stream::headers(&fields), fields)
    }

    /// An entry with this id that is not in the stream; `None` = no entry has such an id.
    pub(super) fn missing(id: &str) -> Option<Self> {
        parse_entry_id(id)?;
        Some(Self::of_entry((id.to_owned(), Vec::new())))
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
    /// Delayed messages.
    Delayed(Values),
    /// Entries that are unread, or that a group has pending.
    Entries(Entries),
    /// Values of this list.
    Values(String, Values),
    /// Instances.
    Instances(Members),
    /// Values that this instance has.
    Held(String, Values),
}

impl Stage {
    fn values(list: String) -> Self {
        Self::Values(list.clone(), Values::new(list, Places::Oldest))
    }

    fn held(key: &str, instance: String) -> Self {
        let values = Values::new(keys::processing(key, &instance), Places::Oldest);
        Self::Held(instance, values)
    }
}

/// Looks at the messages of a queue that are not settled.
#[derive(Debug)]
pub struct Scan<'a> {
    of: &'a Canceller,
    stages: VecDeque<Stage>,
    looked_at: u64,
}

impl Canceller {
    /// Look at the messages that are not settled, in [`Canceller::group`] or in all groups. Entries that come meanwhile are left
    /// out.
    ///
    /// # Errors
    /// [`CancelError::Redis`].
    pub async fn scan(&self) -> Result<Scan<'_>, CancelError> {
        self.time.read(&self.link).await?;
        let (key, mut stages) = (self.key.as_str(), VecDeque::new());
        if self.kind != (Kind::List { reliable: false }) {
            let delayed = Values::new(keys::delayed(key), Places::Scores);
            stages.push_back(Stage::Delayed(delayed));
        }
        match self.kind {
            Kind::Stream => {
                let mut groups = self.groups().await?;
                groups.retain(|(name, _)| self.is_wanted(name));
                let delivered = groups.iter().map(|(_, last)| *last);
                let from = delivered.min().unwrap_or(DeliveryId(0));
                let newest = Entries::newest(key).most(1).next(&self.link).await?;
                if let Some((last, _)) = newest.first() {
                    let from = format!("({}", entry_id(from));
                    let unread = Entries::new(key, Order::Up, &from, last);
                    stages.push_back(Stage::Entries(unread));
                }
                for (name, _) in groups {
                    let pending = Entries::new(key, Order::Pending(name), "-", "+");
                    stages.push_back(Stage::Entries(pending));
                }
            }
            Kind::List { reliable } => {
                stages.push_back(Stage::values(self.key.clone()));
                if reliable {
                    stages.push_back(Stage::values(keys::retry(key)));
                    let instances = Members::new(keys::instances(key));
                    stages.push_back(Stage::Instances(instances));
                }
            }
        }
        Ok(Scan {
            of: self,
            stages,
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
        if self.link.count("EXISTS", &self.key).await? == 0 {
            return Ok(Vec::new());
        }
        let mut ask = cmd("XINFO");
        ask.arg("GROUPS").arg(&self.key);
        let groups = reply::array(COMMAND, self.link.call(COMMAND, &ask).await?)?;
        let group = |info| {
            let mut info = Info::new(COMMAND, info)?;
            let last = info.text("last-delivered-id")?;
            let last = parse_entry_id(&last).map_or(DeliveryId(0), |(id, _)| id);
            Ok((info.text("name")?, last))
        };
        groups.into_iter().map(group).collect()
    }

    /// The entry of a stream with this id, settled or not.
    pub(super) async fn entry(&self, id: &str) -> Result<Option<Found>, RedisError> {
        if self.kind != Kind::Stream || parse_entry_id(id).is_none() {
            return Ok(None);
        }
        let mut one = Entries::new(&self.key, Order::Up, id, id);
        Ok(one.next(&self.link).await?.pop().map(Found::of_entry))
    }

    /// The newest entry of the stream whose message has this id, settled or not.
    pub(super) async fn settled(&self, id: &str) -> Result<Option<Found>, CancelError> {
        if self.kind != Kind::Stream {
            return Ok(None);
        }
        let most = usize::try_from(self.search_max).unwrap_or(usize::MAX);
        let mut all = Entries::newest(&self.key).most(most);
        // A header in front of which `h:` stands.
        all.wanted = (vec![format!("h:{MESSAGE_ID}")], id.len() + 1);
        loop {
            let page = all.next(&self.link).await?;
            if page.is_empty() {
                break;
            }
            let mut page = page.into_iter().map(Found::of_entry);
            if let Some(found) = page.find(|found| found.is(id)) {
                return Ok(self.entry(found.entry().unwrap_or_default()).await?);
            }
        }
        match all.left {
            0 => Err(CancelError::Bound(self.search_max)),
            _ => Ok(None),
        }
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
        let fields = fields_of(&place.value().1);
        Found::new(place, stream::headers(&fields), fields)
    }
}

impl Scan<'_> {
    /// So many of the last page are cancelled: what was behind them stands in their place.
    pub fn removed(&mut self, count: usize) {
        if let Some(Stage::Delayed(values) | Stage::Values(_, values) | Stage::Held(_, values)) =
            self.stages.front_mut()
        {
            values.removed(count);
        }
    }

    /// Whether a message came at least so long ago, by the server's clock.
    pub fn is_older(&self, found: &Found, than: Duration) -> bool {
        let now = self.of.time.now_ms();
        let came = found.at_ms();
        came.is_some_and(|at| at.saturating_add(millis(than)) <= now)
    }

    /// The next messages, a bounded number of bytes; there may be none. `None` at the end.
    ///
    /// # Errors
    /// [`RedisError`]. The next call goes on.
    pub async fn next(&mut self) -> Result<Option<Vec<Found>>, RedisError> {
        let (of, link) = (self.of, &self.of.link);
        let page: Vec<Found> = match self.stages.front_mut() {
            None => return Ok(None),
            Some(Stage::Delayed(values)) => {
                let page = values.next(link).await?.into_iter();
                page.map(|(member, _)| of.of_delayed(member)).collect()
            }
            Some(Stage::Entries(entries)) => {
                let page = entries.next(link).await?.into_iter();
                page.map(Found::of_entry).collect()
            }
            Some(Stage::Values(list, values)) => {
                let page = values.next(link).await?.into_iter();
                page.map(|(value, _)| of.of_value(Place::Value(list.clone(), value)))
                    .collect()
            }
            Some(Stage::Held(host, values)) => {
                let page = values.next(link).await?.into_iter();
                page.map(|(value, _)| of.of_value(Place::Held(host.clone(), value)))
                    .collect()
            }
            Some(Stage::Instances(instances)) => {
                if let Some(names) = instances.next(link).await? {
                    for name in names {
                        self.stages.push_front(Stage::held(&of.key, name));
                    }
                    return Ok(Some(Vec::new()));
                }
                Vec::new()
            }
        };
        self.looked_at += page.len() as u64;
        if page.is_empty() {
            self.stages.pop_front();
        }
        Ok(Some(page))
    }

    /// The next messages with this id; `None` = there are no more, or [`Scan::is_cut`].
    pub(super) async fn next_of(&mut self, id: &str) -> Result<Option<Vec<Found>>, RedisError> {
        while !self.is_cut() {
            let Some(mut page) = self.next().await? else {
                break;
            };
            page.retain(|found| found.is(id));
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// It has looked at as many as a search by id may.
    pub(super) fn is_cut(&self) -> bool {
        self.looked_at >= self.of.search_max
    }
}
