//! Scripts: each a file that states its KEYS, ARGV, reply and atomicity. Run by digest; Redis may
//! forget them at any time (`SCRIPT FLUSH`, a restart), then they are loaded and run again.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Value};

use crate::redis::connection::Link;
use crate::redis::error::Error;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        /// A script.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Script {
            $($(#[$doc])* $name,)*
        }

        impl Script {
            /// Every script.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What stands for it in errors.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $file,)* }
            }

            /// Its text.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("lua/", $file, ".lua")),)* }
            }
        }
    };
}

scripts! {
    /// Record starts.
    Record = "record";
    /// Renew leases.
    Renew = "renew";
    /// Park deliveries.
    Park = "park";
    /// Leave suspects to other hosts.
    Leave = "leave";
    /// Void what was asked before.
    Fence = "fence";
    /// Discard deliveries.
    Discard = "discard";
    /// Dead-letter one delivery.
    DeadLetter = "dead_letter";
    /// Check that deliveries are owned.
    Holds = "holds";
    /// Take back what is due.
    TakeDue = "take_due";
    /// Take back what is parked without a due time.
    Sweep = "sweep";
    /// Claim orphans.
    Orphans = "orphans";
    /// Read again what was lost on its way.
    Adopt = "adopt";
    /// What waits.
    Backlog = "backlog";
    /// Trim what every group acknowledged.
    RetainAcked = "retain_acked";
    /// Trim to a length.
    RetainMaxlen = "retain_maxlen";
    /// Delete consumers that are gone.
    Consumers = "consumers";
    /// Make a deleted group again.
    Repair = "repair";
    /// Hold again what a new group does not know.
    Readopt = "readopt";
    /// Claim what waits in a list.
    ListClaim = "list_claim";
    /// Claim what is due on a list.
    ListDue = "list_due";
    /// Renew leases and record starts on a list.
    ListHold = "list_hold";
    /// Take deliveries of a list off.
    ListRemove = "list_remove";
    /// Put deliveries of a list back.
    ListReturn = "list_return";
    /// Dead-letter one delivery of a list.
    ListDeadLetter = "list_dead_letter";
    /// Whether a list's delivery is held.
    ListHolds = "list_holds";
    /// Which instances of a list may hold orphans.
    ListLapsed = "list_lapsed";
    /// Look at the orphans of one instance of a list.
    ListOrphans = "list_orphans";
    /// Take over orphans of a list.
    ListTake = "list_take";
    /// What an instance of a list holds.
    ListOwn = "list_own";
    /// Forget instances of a list.
    ListForget = "list_forget";
    /// What waits in a list.
    ListBacklog = "list_backlog";
    /// What a list looks like.
    ListReport = "list_report";
    /// Append to a stream what is due.
    AppendDue = "append_due";
    /// Publish a message for later.
    PublishLater = "publish_later";
    /// Publish to a list that lapses.
    PublishLapsing = "publish_lapsing";
    /// Claim what is unread beyond a length.
    Overflow = "overflow";
    /// Store a version of the handler.
    Deploy = "deploy";
    /// Want another version of the handler.
    RequestVersion = "request_version";
    /// Say what a host looks like.
    Seen = "seen";
    /// Count dead letters by reason.
    CountReasons = "count_reasons";
    /// Move one dead letter back.
    Replay = "replay";
    /// Read a stretch of a dead-letter queue that is a list.
    PageList = "page_list";
    /// Move one dead letter of a list back.
    ReplayList = "replay_list";
    /// Hold a dead letter for a move in steps.
    MoveHold = "move_hold";
    /// Write the copy of a dead letter that moves in steps.
    MoveCopy = "move_copy";
    /// End a move in steps.
    MoveDone = "move_done";
}

static DIGESTS: LazyLock<HashMap<Script, String>> = LazyLock::new(|| {
    Script::ALL
        .iter()
        .map(|script| {
            let digest = redis::Script::new(script.source()).get_hash().to_owned();
            (*script, digest)
        })
        .collect()
});

impl Script {
    /// The call of this script with these keys; arguments follow.
    pub fn on(self, keys: &[&str]) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(&DIGESTS[&self]).arg(keys.len());
        for key in keys {
            cmd.arg(*key);
        }
        cmd
    }
}

/// Run calls of one script in one round trip; a refusal stands in its place as
/// [`Value::ServerError`].
///
/// # Errors
/// `Connection` or `Deadline`; `Unavailable` with `NOSCRIPT` if Redis forgets faster than we load.
pub async fn run_all(link: &Link, script: Script, calls: Vec<Cmd>) -> Result<Vec<Value>, Error> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call);
    }
    send(link, script.name(), &pipeline).await
}

/// Send commands, calls of scripts among them, in one round trip; a refusal stands in its place as
/// [`Value::ServerError`].
///
/// # Errors
/// As [`run_all`].
pub async fn send(
    link: &Link,
    name: &'static str,
    pipeline: &Pipeline,
) -> Result<Vec<Value>, Error> {
    let mut replies = link.pipeline(name, pipeline).await?;
    if !replies.iter().any(is_unknown) {
        return Ok(replies);
    }
    link.script_was_forgotten();
    load(link).await?;
    let mut again = Pipeline::new();
    let mut places = Vec::new();
    for (place, (call, reply)) in pipeline.cmd_iter().zip(&replies).enumerate() {
        if is_unknown(reply) {
            again.add_command(call.clone());
            places.push(place);
        }
    }
    for (place, reply) in places.into_iter().zip(link.pipeline(name, &again).await?) {
        replies[place] = reply;
    }
    Ok(replies)
}

/// Run one call of a script; a refusal is an error.
///
/// # Errors
/// As [`run_all`], and what Redis refuses.
pub async fn run(link: &Link, script: Script, call: &Cmd) -> Result<Value, Error> {
    match link.call(script.name(), call).await {
        Err(Error::Unavailable { code, .. }) if code == "NOSCRIPT" => {
            link.script_was_forgotten();
            load(link).await?;
            link.call(script.name(), call).await
        }
        other => other,
    }
}

/// Load every script.
///
/// # Errors
/// As [`run`].
pub async fn load(link: &Link) -> Result<(), Error> {
    let mut pipeline = Pipeline::new();
    for script in Script::ALL {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    for reply in link.pipeline("SCRIPT LOAD", &pipeline).await? {
        crate::redis::reply::accepted("SCRIPT LOAD", reply)?;
    }
    Ok(())
}

fn is_unknown(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_states_its_contract() {
        for script in Script::ALL {
            let source = script.source();
            for part in [
                "-- KEYS ",
                "-- ARGV ",
                "-- reply ",
                "-- Atomicity: ",
                "A repeat",
            ] {
                assert!(source.contains(part), "{}: no {part}", script.name());
            }
        }
    }
}
