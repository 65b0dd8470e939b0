//! How a program is called: a handler that is a WASIp1 module, or exports `wasi:cli/run`.

use std::collections::BTreeMap;

use crate::config::settings::section;
use crate::sandbox::{Meaning, Stdout};

section! { "Programs";
    /// The arguments of a program, without its name.
    ARGS: Vec<String> = ("program.args", "JSON").default("[]");

    /// The meanings of exit codes of a program: `ack`, `nack-requeue`, `hold DURATION`, `drop` or `fail`. `hold 5m`
    /// is a `nack-requeue` that is not charged (`hold.max`). These are added to the usual ones: 0 is `ack`, 75 is
    /// `nack-requeue`, 65 is `drop`, with the last line of stderr as the reason. Any other code is `fail`: a failed
    /// attempt. In a file it is a table, `[program.exit_codes]`.
    EXIT_CODES: BTreeMap<u8, Meaning> = ("program.exit_codes", "JSON").default("{}");

    /// Where the stdout of a program goes. `log`: to the log, line by line. `publish:NAME`: with the ack, to the
    /// destination NAME of `[grant.publish]`, as one message, unless it is empty. `reply`: with the ack, to a producer that
    /// waits, unless it is empty: on streams and reliable lists.
    STDOUT: Stdout = ("program.stdout", "WHERE").default("log");
}
