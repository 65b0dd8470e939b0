//! The scripts: their names, texts and digests.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Cmd, Pipeline};

/// Each script is the file `lua/<name>.lua`, which states its KEYS, ARGV, reply and atomicity, behind
/// its parts: files of `lua/parts`. `oom`: it also runs when the server is out of memory. `asked`: it does
/// not begin on a server that would refuse its writes.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $([$($part:literal),*])? $file:literal $($oom:ident)?;)*) => {
        /// A script.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Script {
            $($(#[$doc])* $name,)*
        }

        impl Script {
            /// Every script.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in errors.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $file,)* }
            }

            /// Its text.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$name => concat!(
                    $(flags!($oom),)?
                    $($(include_str!(concat!("lua/parts/", $part, ".lua")),)*)?
                    include_str!(concat!("lua/", $file, ".lua")),
                ),)* }
            }
        }
    };
}

macro_rules! flags {
    (oom) => {
        "#!lua flags=allow-oom\n"
    };
    // Redis asks before the start whether it takes writes at all: also where the first command is none.
    (asked) => {
        "#!lua\n"
    };
}

scripts! {
    /// Record starts.
    Record = ["epoch", "pending"] "record";
    /// Renew leases.
    Renew = ["epoch", "pending"] "renew";
    /// Park deliveries.
    Park = ["fenced", "time", "kept", "missing", "epoch", "pending"] "park";
    /// Leave suspects to other hosts.
    Leave = ["fenced", "epoch", "pending"] "leave";
    /// Void the calls that had no answer.
    Fence = "fence" oom;
    /// Discard deliveries.
    Discard = ["epoch", "pending"] "discard";
    /// Acknowledge deliveries with their effects.
    Acknowledge = ["epoch", "time", "pending", "effects", "marks"] "acknowledge" asked;
    /// The same for deliveries without effects: it takes little memory.
    AcknowledgeOnly = ["epoch", "time", "pending", "effects", "marks"] "acknowledge" oom;
    /// Acknowledge deliveries that other hosts may have by now.
    AcknowledgeLate = ["epoch", "time", "pending"] "acknowledge_late" oom;
    /// Find messages that were handled already.
    Marked = "marked";
    /// Dead-letter deliveries.
    DeadLetter = ["epoch", "pending", "copies"] "dead_letter";
    /// Discard a delivery whose copy was written just before.
    DiscardCopied = ["info", "epoch", "pending"] "discard_copied";
    /// Check that a delivery is owned.
    Holds = ["epoch", "pending"] "holds";
    /// Claim unread entries.
    Fetch = ["time", "kept", "missing", "step"] "fetch";
    /// Take back parked deliveries that are due.
    TakeDue = ["time", "due", "kept", "missing", "info", "ids", "delivered", "unread", "epoch", "pending", "step", "claim"] "take_due";
    /// Remove the records of deliveries that this host knows to have claimed.
    Confirm = ["kept", "epoch", "pending"] "confirm" oom;
    /// Take back parked deliveries without a due time.
    Sweep = ["time", "kept", "claim"] "sweep";
    /// Say what this host goes by, and learn what all hosts of the queue go by.
    GoBy = ["time", "terms"] "go_by" oom;
    /// Claim orphans.
    Orphans = ["time", "terms", "claim"] "orphans";
    /// Renew deliveries whose last renewal lies ahead of the clock.
    CountFromNow = "count_from_now";
    /// Read own deliveries again after a lost reply.
    Adopt = ["claim"] "adopt";
    /// Count what waits.
    Backlog = ["info", "behind"] "backlog";
    /// Trim what every group acknowledged, or to a length.
    Retain = ["info", "ids"] "retain";
    /// Delete consumers that are gone.
    Consumers = ["info"] "consumers";
    /// Make a deleted group again, or mark one.
    Repair = ["info", "ids", "missing"] "repair" oom;
    /// Park deliveries of an earlier group again.
    ParkAgain = ["info", "ids", "kept", "missing", "delivered", "unread", "epoch"] "park_again";
    /// Take back deliveries that a new group does not know.
    Readopt = ["epoch", "pending"] "readopt";
    /// Claim waiting values of a list.
    ListClaim = ["time", "step"] "list_claim" oom;
    /// Claim delayed values of a list that are due.
    ListDue = ["time", "due"] "list_due" oom;
    /// Renew leases and record starts on a list.
    ListHold = ["time", "step", "find"] "list_hold" oom;
    /// Take deliveries off a list.
    ListRemove = ["step", "find"] "list_remove" oom;
    /// Acknowledge deliveries of a list with their effects.
    ListAcknowledge = ["time", "step", "find", "effects", "marks"] "list_acknowledge" asked;
    /// The same for deliveries without effects: it takes little memory.
    ListAcknowledgeOnly = ["time", "step", "find", "effects", "marks"] "list_acknowledge" oom;
    /// Put deliveries of a list back.
    ListReturn = ["time", "step", "find"] "list_return" oom;
    /// Dead-letter deliveries of a list.
    ListDeadLetter = ["step", "find"] "list_dead_letter" oom;
    /// Check that a delivery of a list is held.
    ListHolds = ["step", "find"] "list_holds";
    /// List the instances of a list that may hold orphans.
    ListLapsed = ["time", "terms"] "list_lapsed" oom;
    /// List the orphans of one instance of a list.
    ListOrphans = ["time", "terms", "step"] "list_orphans" oom;
    /// Take over orphans of a list.
    ListTake = ["time", "terms", "step", "find"] "list_take" oom;
    /// List the deliveries that an instance of a list holds.
    ListOwn = ["step"] "list_own";
    /// Forget instances of a list.
    ListForget = ["time"] "list_forget" oom;
    /// Report the state of a list.
    ListReport = ["time", "due"] "list_report";
    /// Take values off a simple list.
    ListPop = ["step"] "list_pop" oom;
    /// Append messages to a stream that are due.
    AppendDue = ["time", "due"] "append_due" oom;
    /// Publish a message for later.
    PublishLater = ["time"] "publish_later";
    /// Read values of a handler.
    ReadValues = "read_values";
    /// Set a value of a handler, if nobody has changed it.
    SwapValue = "swap_value";
    /// Publish what attempts of an at-most-once queue published.
    Publish = ["time", "effects"] "publish" asked;
    /// Read the head of an outbox.
    OutboxHead = ["time", "step"] "outbox_head";
    /// Remove entries of an outbox that its destination confirms.
    OutboxTrim = "outbox_trim" oom;
    /// Report how much outboxes hold.
    OutboxReport = ["time"] "outbox_report";
    /// Write entries of an outbox to their destination.
    Relay = ["time", "effects"] "relay" asked;
    /// Publish to a list with a time to live.
    PublishLapsing = "publish_lapsing";
    /// Count unread entries.
    CountUnread = ["info", "delivered", "behind"] "count_unread";
    /// Claim unread entries over a length.
    Overflow = ["info", "ids", "delivered"] "overflow";
    /// Store a version of the handler.
    Deploy = ["time"] "deploy";
    /// Want another version of the handler.
    RequestVersion = ["time"] "request_version";
    /// Report the state of a host.
    Seen = ["time"] "seen";
    /// List a queue.
    Register = ["time"] "register";
    /// Count dead letters by reason.
    CountReasons = "count_reasons";
    /// Move dead letters of a stream back.
    Replay = ["copies"] "replay";
    /// Move one dead letter of a list back.
    ListReplay = ["dead"] "list_replay";
    /// Read a stretch of a dead-letter queue that is a stream, without bodies.
    DeadHeads = ["step"] "dead_heads";
    /// Read a stretch of a dead-letter queue that is a list.
    PageList = ["step"] "page_list";
    /// Hold a dead letter for a two-phase move.
    MoveHold = ["time", "dead"] "move_hold";
    /// Write the copy of a dead letter in a two-phase move.
    MoveCopy = "move_copy";
    /// Void the copy of a two-phase move.
    MoveVoid = "move_void";
    /// End a two-phase move.
    MoveDone = ["dead"] "move_done";
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

    /// The command that loads this script.
    pub(crate) fn load(self) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(self.source());
        cmd
    }
}

/// The commands that load every script.
pub(super) fn load_all() -> Pipeline {
    let mut pipeline = Pipeline::new();
    for script in Script::ALL {
        pipeline.add_command(script.load());
    }
    pipeline
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
                let count = source.matches(part).count();
                assert_eq!(count, 1, "{}: {part}", script.name());
            }
        }
    }
}
