//! Dead letters: copied, then taken off the queue. One script does both, unless the copy has too many
//! fields for a script, or its queue is in another slot of a cluster. Too many fields are written and removed
//! in one transaction. Across slots it takes several commands: a crash or a lost reply between them leaves a
//! duplicate, never a loss.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value, cmd};
use tracing::warn;

use super::{AtLeastOnce, answer_of, remove};
use crate::calls::Replies;
use crate::calls::copy::{self, Layout};
use crate::calls::words::{self, full, refused, reply_of, word_reply};
use crate::delivery::policy::Rejection;
use crate::delivery::text::{DETAIL_MAX, printable, truncate_utf8};
use crate::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use crate::queue::{Claim, Maintenance, Reply, Settlement, Sweep};
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::PER_CALL;
use crate::redis::script::Script;
use crate::wire::Raw;
use crate::wire::dead_letter::Context;
use crate::wire::death::{self, Incoming};

/// Why dead letters wait where their key was taken away, or could not be used.
const NO_KEY: &str = "`dead_letter.key` was taken away, or cannot be used: set one, or route the reasons to `discard`";
/// About how many bytes of dead letters are in one round trip; and of how many bytes their copies are, which Redis
/// makes of what it has: that blocks it.
const BYTES_MAX: usize = 512 << 10;
const COPIED_MAX: usize = 4 << 20;
/// Most dead letters that one command drops because of the bound. Fewer over the bound of a stream may stay: Redis
/// drops whole blocks.
const DROPPED_MAX: u64 = 10_000;
const STREAM_SLACK: u64 = 1000;

/// Where one dead letter goes.
#[derive(Clone, Debug)]
pub(in crate::queue) struct Destination {
    key: String,
    /// Set if the message would go round for ever: its history, with the present death.
    cycle: Option<Bytes>,
    /// Its history was damaged: it was read as far as possible.
    damaged: bool,
}

impl Destination {
    /// `died`: its history, including the present death.
    pub(in crate::queue) fn of(
        target: &DeadLetterQueue,
        died: &Incoming,
        context: &Context<'_>,
    ) -> Self {
        let key = target.target(context.rejection.reason);
        let cycles = died.history.cycles_to(key);
        Self {
            key: match cycles {
                true => target.cycle(context.source),
                false => key.to_owned(),
            },
            cycle: cycles.then(|| death::write(&died.history)),
            damaged: died.damaged,
        }
    }
}

/// Events since the last [`Maintenance`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    dropped: AtomicU64,
    cycles: AtomicU64,
    damaged: AtomicU64,
    overflowed: AtomicU64,
    other_group: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) marks_refused: AtomicU64,
    /// Dead-letter queues that were left over their bound.
    over: Mutex<BTreeSet<String>>,
}

impl Counts {
    /// A dead letter is written.
    fn written(&self, claim: &Claim, to: &Destination) {
        if to.damaged {
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
        let Some(history) = &to.cycle else {
            return;
        };
        self.cycles.fetch_add(1, Ordering::Relaxed);
        let mut history = String::from_utf8_lossy(history).into_owned();
        truncate_utf8(&mut history, DETAIL_MAX);
        warn!(
            message_id = printable(&claim.message.id),
            history = printable(&history),
            to = to.key,
            "ended a cycle: no handler has seen it since it died there last"
        );
    }

    /// A dead-letter queue is over its bound by this many entries: housekeeping drops them.
    fn is_over(&self, key: &str, over: u64) {
        if over > 0 {
            self.over.lock().insert(key.to_owned());
        }
    }

    /// Report the counts, once.
    pub(super) fn take(&self) -> Maintenance {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Maintenance {
            dead_letters_dropped: take(&self.dropped),
            cycles: take(&self.cycles),
            histories_damaged: take(&self.damaged),
            overflowed: take(&self.overflowed),
            other_group: take(&self.other_group),
            duplicates: take(&self.duplicates),
            marks_refused: take(&self.marks_refused),
            ..Maintenance::default()
        }
    }

    /// The report was lost: its counts go into the next one.
    pub(super) fn give_back(&self, lost: &Maintenance) {
        for (counter, count) in [
            (&self.dropped, lost.dead_letters_dropped),
            (&self.cycles, lost.cycles),
            (&self.damaged, lost.histories_damaged),
            (&self.overflowed, lost.overflowed),
            (&self.other_group, lost.other_group),
            (&self.duplicates, lost.duplicates),
            (&self.marks_refused, lost.marks_refused),
        ] {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// A dead letter, and the place of its settlement.
struct DeadLetter {
    place: usize,
    to: Destination,
    copy: Raw,
    /// How many bytes are sent of it, and how many it has.
    size: usize,
    copied: usize,
}

/// Dead letters that are made one after the other.
struct Letters<'a, Q> {
    queue: &'a Q,
    settlements: &'a [Settlement],
    target: &'a DeadLetterQueue,
    now_ms: u64,
    rest: std::slice::Iter<'a, (usize, &'a Rejection)>,
    /// The next one, if it did not fit into the batch before.
    kept: Option<DeadLetter>,
}

impl<Q: AtLeastOnce> Letters<'_, Q> {
    /// As many as one round trip takes; none at the end.
    async fn batch(&mut self, replies: &mut Replies) -> Result<Vec<DeadLetter>, Error> {
        let (mut letters, mut bytes, mut copied) = (Vec::new(), 0, 0);
        while letters.len() < PER_CALL {
            let letter = match self.kept.take() {
                Some(kept) => kept,
                None => match self.next(replies).await? {
                    Some(next) => next,
                    None => break,
                },
            };
            let is_much = bytes + letter.size > BYTES_MAX || copied + letter.copied > COPIED_MAX;
            if is_much && !letters.is_empty() {
                // Redis may refuse a large one by hanging up: none but this one is in doubt then.
                self.kept = Some(letter);
                break;
            }
            bytes += letter.size;
            copied += letter.copied;
            letters.push(letter);
        }
        Ok(letters)
    }

    /// The next one that can be made.
    async fn next(&mut self, replies: &mut Replies) -> Result<Option<DeadLetter>, Error> {
        loop {
            let Some(&(place, rejection)) = self.rest.next() else {
                return Ok(None);
            };
            let settlement = &self.settlements[place];
            let context = Context {
                source: self.queue.key(),
                source_id: &self.queue.source_id(&settlement.claim),
                group: self.queue.group(),
                rejection,
                handler: &settlement.handler,
                evidence: settlement.evidence.as_deref(),
                now_ms: self.now_ms,
                expires_at_ms: settlement.expires_at_ms,
            };
            let (claim, target) = (&settlement.claim, self.target);
            let records = self.queue.records(claim).await?;
            match self.queue.copy_of(claim, target, &context, &records) {
                Ok((to, copy)) => {
                    let size = copy::size_sent(&copy, &settlement.claim.raw);
                    let copied = copy::size(&copy);
                    return Ok(Some(DeadLetter {
                        place,
                        to,
                        copy,
                        size,
                        copied,
                    }));
                }
                Err(error) => replies[place] = Some(Reply::Refused(error.to_string())),
            }
        }
    }
}

/// Dead-letter the deliveries at these places.
pub(super) async fn write<Q: AtLeastOnce>(
    queue: &Q,
    settlements: &[Settlement],
    dead: &[(usize, &Rejection)],
    replies: &mut Replies,
) -> Result<(), Error> {
    let rules = queue.base().rules.now();
    let Some(target) = &rules.dead_letter else {
        for (place, _) in dead {
            replies[*place] = Some(Reply::Refused(NO_KEY.to_owned()));
        }
        return Ok(());
    };
    let mut letters = Letters {
        queue,
        settlements,
        target,
        now_ms: queue.base().time.now_ms(),
        rest: dead.iter(),
        kept: None,
    };
    loop {
        let ready = letters.batch(replies).await?;
        if ready.is_empty() {
            return Ok(());
        }
        for (place, reply) in send(queue, settlements, target, &ready).await? {
            replies[place] = Some(reply);
        }
    }
}

/// Write dead letters in one round trip, and in more those that no script can write. Says what became of the
/// delivery at each place.
async fn send<Q: AtLeastOnce>(
    queue: &Q,
    settlements: &[Settlement],
    target: &DeadLetterQueue,
    letters: &[DeadLetter],
) -> Result<Vec<(usize, Reply)>, Error> {
    let (script, base) = (Q::DEAD_LETTER, queue.base());
    let (scripted, mut others): (Vec<_>, Vec<_>) = letters
        .iter()
        .partition(|letter| copy::fits_script(&letter.copy));
    let mut alike: BTreeMap<(&str, Layout), Vec<&DeadLetter>> = BTreeMap::new();
    for letter in scripted {
        let original = &settlements[letter.place].claim.raw;
        let layout = Layout::of(&letter.copy, Some(original));
        alike
            .entry((&letter.to.key, layout))
            .or_default()
            .push(letter);
    }
    let call_of = |key: &str, layout: &Layout, letters: &[&DeadLetter]| {
        let mut call = queue.dead_letter_call(key);
        call.arg(target.bound(key, queue.key()).unwrap_or(0))
            .arg(match target.on_full {
                OnFull::DropOldest => "drop-oldest",
                OnFull::Stop => "stop",
            });
        let mut fields = Vec::with_capacity(letters.len());
        for letter in letters {
            match &letter.copy {
                Raw::Fields(copy) => fields.push(&copy[..]),
                Raw::Value(copy) => {
                    let settlement = &settlements[letter.place];
                    queue.dead_letter_one(settlement, &mut call);
                    call.arg(&answer_of(queue, settlement)[..]);
                    copy::push_value(copy, Some(&settlement.claim.raw), &mut call);
                }
            }
        }
        if !fields.is_empty() {
            let settlement = |at: usize| &settlements[letters[at].place];
            let ids = (0..letters.len()).map(|at| queue.source_id(&settlement(at).claim));
            layout.push(&fields, &ids.collect::<Vec<_>>(), &mut call, |at, call| {
                queue.dead_letter_one(settlement(at), call);
                call.arg(&answer_of(queue, settlement(at))[..]);
            });
        }
        call
    };
    let calls = alike
        .iter()
        .map(|((key, layout), some)| call_of(key, layout, some));
    let answers = base.commands.run_all(script, calls.collect()).await?;
    let (mut whole, mut replies) = (Vec::new(), Vec::with_capacity(letters.len()));
    for (((key, _), some), answer) in alike.into_iter().zip(answers) {
        match reply::accepted(script.name(), answer) {
            Ok(answer) => {
                let words = words(queue, key, some.len(), answer)?;
                for (letter, word) in some.iter().zip(words) {
                    match word.as_str() {
                        // The entry was trimmed: this host has its only copy.
                        "absent" => whole.push(*letter),
                        word => replies.push((*letter, reply_of(script.name(), word)?)),
                    }
                }
            }
            Err(Error::Configuration { code, .. }) if code == "CROSSSLOT" => others.extend(some),
            Err(error) => {
                let reply = refused(queue.about(error))?;
                replies.extend(some.iter().map(|letter| (*letter, reply.clone())));
            }
        }
    }
    for letter in whole {
        let layout = Layout::of(&letter.copy, None);
        let call = call_of(&letter.to.key, &layout, &[letter]);
        let answer = base.commands.run(script, &call).await;
        let word = answer.and_then(|answer| words(queue, &letter.to.key, 1, answer));
        let reply = word.and_then(|words| reply_of(script.name(), &words[0]));
        replies.push((letter, reply.or_else(|error| refused(queue.about(error)))?));
    }
    for letter in others {
        let reply = copy_and_discard(queue, &settlements[letter.place], target, letter).await;
        replies.push((letter, reply.or_else(|error| refused(queue.about(error)))?));
    }
    for (letter, reply) in &replies {
        if *reply == Reply::Done {
            let claim = &settlements[letter.place].claim;
            base.counts.written(claim, &letter.to);
        }
    }
    let placed = |(letter, reply): (&DeadLetter, Reply)| (letter.place, reply);
    Ok(replies.into_iter().map(placed).collect())
}

/// The words about these dead letters; notes how many others they drove out of their queue.
fn words<Q: AtLeastOnce>(
    queue: &Q,
    key: &str,
    count: usize,
    answer: Value,
) -> Result<Vec<String>, Error> {
    let command = Q::DEAD_LETTER.name();
    let [words, dropped, over] = reply::tuple(command, answer)?;
    let dropped = reply::count(command, &dropped)?;
    let counts = &queue.base().counts;
    counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    counts.is_over(key, reply::count(command, &over)?);
    let words = words::each(command, words, count)?;
    let text = |word| reply::text(command, word);
    words.into_iter().map(text).collect()
}

/// Copy a dead letter that no script can write, and take its delivery off the queue.
async fn copy_and_discard<Q: AtLeastOnce>(
    queue: &Q,
    settlement: &Settlement,
    target: &DeadLetterQueue,
    letter: &DeadLetter,
) -> Result<Reply, Error> {
    let (link, key) = (&queue.base().commands, letter.to.key.as_str());
    let most = target.bound(key, queue.key());
    let is_wide = !copy::fits_script(&letter.copy);
    match queue.holds(settlement, most.map(|_| key), is_wide).await? {
        Reply::Done => {}
        other => return Ok(other),
    }
    let length = match letter.copy {
        Raw::Fields(_) => "XLEN",
        Raw::Value(_) => "LLEN",
    };
    let before = link.count(length, key).await?;
    if target.on_full == OnFull::Stop && most.is_some_and(|most| before >= most) {
        return Ok(full());
    }
    let command = copy::command(&letter.copy);
    let mut write = cmd(command);
    write.arg(key);
    if let Raw::Fields(_) = letter.copy {
        if let Some(most) = most.filter(|_| target.on_full == OnFull::DropOldest) {
            write.arg("MAXLEN").arg("~").arg(most);
        }
        write.arg("*");
    }
    copy::push(&letter.copy, &mut write);
    if let Some((name, records)) = queue.journal_field(&settlement.claim).await? {
        write.arg(&name[..]).arg(&records[..]);
    }
    let mut discarded = None;
    let transaction = is_wide
        .then(|| queue.discard_copied_call(settlement, key))
        .flatten()
        .map(|(script, mut call)| {
            call.arg(&answer_of(queue, settlement)[..]);
            (script, call)
        });
    let written = match transaction {
        Some(discard) => match in_one_transaction(link, command, &write, discard).await {
            Ok((written, word)) => {
                discarded = Some(word_reply(Q::DEAD_LETTER.name(), word)?);
                written
            }
            // The dead-letter queue is in another slot: a lost reply costs a second copy.
            Err(Error::Configuration { code, .. }) if code == "CROSSSLOT" => {
                link.call(command, &write).await?
            }
            Err(error) => return Err(error),
        },
        None => link.call(command, &write).await?,
    };
    let dropped = match (&letter.copy, most) {
        (Raw::Fields(_), _) => (before + 1).saturating_sub(link.count(length, key).await?),
        (Raw::Value(_), None) => 0,
        (Raw::Value(_), Some(most)) => {
            drop_oldest(queue, key, reply::count(command, &written)?, most).await?
        }
    };
    let counts = &queue.base().counts;
    counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    if let Some(reply) = discarded {
        return Ok(reply);
    }
    remove(queue, settlement).await
}

/// Drop the oldest dead letters of a list of this length over its bound, as many as one command may. Returns how many
/// are dropped.
async fn drop_oldest<Q: AtLeastOnce>(
    queue: &Q,
    key: &str,
    length: u64,
    most: u64,
) -> Result<u64, Error> {
    let base = queue.base();
    let over = length.saturating_sub(most);
    let dropped = over.min(DROPPED_MAX);
    if dropped > 0 {
        let mut trim = cmd("LTRIM");
        trim.arg(key).arg(0).arg(length - dropped - 1);
        base.commands.call("LTRIM", &trim).await?;
    }
    base.counts.is_over(key, over - dropped);
    Ok(dropped)
}

/// Go on to shorten dead-letter queues that were left over their bound: the bound was lowered.
pub(super) async fn shorten<Q: AtLeastOnce>(
    queue: &Q,
    done: &mut Maintenance,
) -> Result<(), Error> {
    let (base, rules) = (queue.base(), queue.base().rules.now());
    let over = std::mem::take(&mut *base.counts.over.lock());
    let target = rules.dead_letter.as_ref();
    let Some(target) = target.filter(|target| target.on_full == OnFull::DropOldest) else {
        return Ok(());
    };
    let mut over = over.into_iter();
    while let Some(key) = over.next() {
        let Some(most) = target.bound(&key, queue.key()) else {
            continue;
        };
        let trimmed = match queue.group() {
            Some(_) => {
                let mut trim = cmd("XTRIM");
                trim.arg(&key).arg("MAXLEN").arg("~").arg(most);
                let trimmed = base
                    .commands
                    .call("XTRIM", trim.arg("LIMIT").arg(DROPPED_MAX));
                let trimmed = trimmed.await.and_then(|n| reply::count("XTRIM", &n));
                if let Ok(n) = trimmed {
                    base.counts.is_over(&key, (n + STREAM_SLACK) / DROPPED_MAX);
                }
                trimmed
            }
            None => match base.commands.count("LLEN", &key).await {
                Ok(length) => drop_oldest(queue, &key, length, most).await,
                Err(error) => Err(error),
            },
        };
        match trimmed {
            Ok(trimmed) => done.dead_letters_dropped += trimmed,
            // The next dead letters drop some, too.
            Err(error) if error.is_missing_right() => {}
            Err(error) => {
                // The next housekeeping goes on with these.
                base.counts
                    .over
                    .lock()
                    .extend(std::iter::once(key).chain(over));
                return Err(error);
            }
        }
    }
    if !base.counts.over.lock().is_empty() {
        done.unfinished.push(Sweep::DeadLetters);
    }
    Ok(())
}

/// Send a command and the call of a script as one transaction: both are done, or none. Returns their answers. The
/// right to transactions was asked for: without it, they would run one behind the other.
///
/// A transaction goes on behind an error. If Redis had forgotten the script, the write would be done alone, and
/// done again with each repeat. So the transaction loads the script first.
async fn in_one_transaction(
    link: &Link,
    command: &'static str,
    write: &Cmd,
    (script, discard): (&'static Script, Cmd),
) -> Result<(Value, Value), Error> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("MULTI");
    pipeline.add_command(script.load());
    pipeline.add_command(write.clone());
    pipeline.add_command(discard);
    pipeline.cmd("EXEC");
    let answers = Value::Array(link.pipeline(command, &pipeline).await?);
    let [begun, mut loaded, mut written, mut discarded, executed] = reply::tuple(command, answers)?;
    if !matches!(begun, Value::ServerError(_)) {
        // One that Redis does not even queue says why there.
        for queued in [loaded, written, discarded] {
            reply::accepted(command, queued)?;
        }
        let executed = reply::accepted(command, executed)?;
        [loaded, written, discarded] = reply::tuple(command, executed)?;
    }
    reply::accepted(command, loaded)?;
    let written = reply::accepted(command, written)?;
    Ok((written, reply::accepted(command, discarded)?))
}
