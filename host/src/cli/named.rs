//! A queue that is named by its key alone: what it is, the list of queues or Redis says.

use crate::cli::flags::{All, Flags, ReachDestination, ReachQueue, Scope, checked};
use crate::cli::session::{Session, ask_at, block_on, connected};
use crate::cli::text::one_line;
use crate::cli::{Common, Exit, Failure, Variables};
use crate::config::{DeadLetter, QueueKind, Redis, Sources};
use crate::queue::kind::Place;
use crate::registry::{Listed, ListedKind, matching, named};

/// A queue, by its key; or several, by a pattern.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Named {
    /// The queue: its key alone is enough where hosts list it. With `*` (any text)
    /// or `?` (any one character): all listed queues that match
    #[arg(value_name = "QUEUE")]
    name: Option<String>,

    /// The same as a flag
    #[arg(long = "queue", value_name = "QUEUE")]
    queue: Option<String>,
}

/// The flags of a command that looks at a queue.
#[derive(Debug, clap::Args)]
pub(super) struct OfQueue {
    #[command(flatten)]
    pub(super) named: Named,

    #[command(flatten)]
    pub(super) common: Common<ReachQueue>,
}

/// A queue, and the settings that this command has for it.
pub(super) struct FoundQueue {
    pub(super) sources: Sources,
    pub(super) queue: QueueKind,
    pub(super) dead_letter: Option<DeadLetter>,
}

impl Named {
    /// The name, if it is a pattern: `*` is any text, `?` any one character.
    pub(super) fn pattern(&self) -> Option<&str> {
        let name = self.name.as_ref().or(self.queue.as_ref())?;
        name.contains(['*', '?']).then_some(name)
    }
}

/// Work on the queue that is named, or that the settings say.
pub(super) fn with_queue<T>(
    of: OfQueue,
    variables: Variables,
    command: &str,
    work: impl AsyncFnOnce(&Session, FoundQueue) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let flags = of.common.flags;
    let Some(name) = of.named.name.or(of.named.queue) else {
        let (redis, found) = of_settings(flags.sources(variables), command)?;
        return ask_at(&redis, command, async |session| work(session, found).await);
    };
    // Its warnings are those of the settings below as well.
    let redis = flags.clone().collect(variables.clone()).redis()?.value;
    ask_at(&redis, command, async |session| {
        let queue = find(session, &name, flags.flag("group")).await?;
        let flags = flags_of(&queue, flags);
        let (_, found) = of_settings(flags.sources(variables), command)?;
        work(session, found).await
    })
}

/// Work on each listed queue whose key matches a pattern.
pub(super) fn with_queues<T>(
    pattern: &str,
    flags: Flags<ReachQueue>,
    variables: Variables,
    command: &str,
    work: impl AsyncFn(&Session, FoundQueue) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let redis = flags.clone().collect(variables.clone()).redis()?.value;
    ask_at(&redis, command, async |session| {
        let link = session.link("queues");
        let queues = session.retry(async || matching(&link, pattern).await);
        let queues = queues.await?;
        if queues.is_empty() {
            return Err(unknown(pattern));
        }
        let mut done = Vec::new();
        // A channel holds nothing that could be looked at.
        for queue in queues.iter().filter(|q| q.kind != ListedKind::Channel) {
            let flags = flags_of(queue, flags.clone());
            let (_, found) = of_settings(flags.sources(variables.clone()), command)?;
            done.push(work(session, found).await?);
        }
        Ok(done)
    })
}

fn of_settings(sources: Sources, command: &str) -> Result<(Redis, FoundQueue), Failure> {
    let (redis, queue, dead_letter) = checked(sources.collect().redis_and_queue())?;
    refuse_channel(&queue, command)?;
    let found = FoundQueue {
        sources,
        queue,
        dead_letter,
    };
    Ok((redis, found))
}

/// The flags that name this queue in full.
fn flags_of<S: Scope>(queue: &Listed, flags: Flags<S>) -> Flags<S> {
    named_in_full(flags, queue)
        .or("group", queue.group.as_deref())
        .or("recovery_zset", queue.recovery.as_deref())
}

/// The flags that name this queue as a destination.
pub(super) fn destination(
    flags: Flags<ReachDestination>,
    variables: &Variables,
    name: &str,
) -> Result<Flags<ReachDestination>, Failure> {
    let redis = flags.clone().collect(variables.clone()).redis()?.value;
    let queue = ask_at(&redis, "publish", async |session| {
        let link = session.link("queues");
        let found = session.retry(async || named(&link, name).await).await?;
        // A message goes to all groups of a stream.
        found.into_iter().next().ok_or_else(|| unknown(name))
    })?;
    Ok(named_in_full(flags, &queue))
}

/// The flags that name the queue of a host in full.
pub(super) fn served(
    flags: Flags<All>,
    variables: &Variables,
    name: &str,
) -> Result<Flags<All>, Failure> {
    let redis = flags.clone().collect(variables.clone()).redis()?.value;
    // The settings of the host say how it logs.
    let asking = connected(&redis, "run", async |session| {
        let queue = find(session, name, flags.flag("group")).await?;
        Ok::<_, Failure>(flags_of(&queue, flags))
    });
    block_on(asking)
}

/// The key of the dead letters of a queue.
pub(super) fn dead_letters<S: Scope>(
    flags: &Flags<S>,
    variables: &Variables,
    name: &str,
) -> Result<String, Failure> {
    let redis = flags.clone().collect(variables.clone()).redis()?.value;
    let queue = ask_at(&redis, "dlq", async |session| {
        find(session, name, None).await
    })?;
    queue.dead_letter.ok_or_else(|| {
        let what = format!("the hosts of `{name}` have no dead-letter queue");
        Failure::new(Exit::Usage, what).hint("name its key: `hostler dlq peek KEY`")
    })
}

fn named_in_full<S: Scope>(flags: Flags<S>, queue: &Listed) -> Flags<S> {
    let name = &*queue.queue;
    match queue.kind {
        ListedKind::Stream => flags.or("stream", name),
        ListedKind::List => flags.or("list", name).or("reliable", "true"),
        ListedKind::SimpleList => flags.or("list", name),
        ListedKind::Channel => flags.or("channel", name),
    }
}

/// The one queue with this name, of this group if there is one.
pub(super) async fn find(
    session: &Session,
    name: &str,
    group: Option<&str>,
) -> Result<Listed, Failure> {
    let link = session.link("queues");
    let mut found = session.retry(async || named(&link, name).await).await?;
    if group.is_some() {
        found.retain(|queue| queue.group.as_deref() == group);
    }
    if found.len() > 1 {
        let groups: Vec<String> = found
            .iter()
            .map(|queue| one_line(queue.group.as_deref().unwrap_or(queue.kind.label())))
            .collect();
        let what = format!("`{name}` is served in several ways: {}", groups.join(", "));
        return Err(Failure::new(Exit::Usage, what).hint("name the group with `--group`"));
    }
    found.pop().ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    let what = format!("no queue `{name}` is known");
    let hint = "`hostler queues` lists the queues; `--stream KEY --group G` or `--list KEY` name one in \
                full";
    Failure::new(Exit::Usage, what).hint(hint)
}

/// A channel holds nothing: refuse to look at one.
fn refuse_channel(queue: &QueueKind, verb: &str) -> Result<(), Failure> {
    if queue.place() != Place::PubSub {
        return Ok(());
    }
    let what = format!("a channel holds nothing: there is nothing to {verb}");
    Err(Failure::new(Exit::Usage, what).hint("give `--stream` or `--list`"))
}
