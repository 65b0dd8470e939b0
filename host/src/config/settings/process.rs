//! The process: its end, its output, its admin server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::choices::SummaryFormat;
use crate::config::settings::{DAY, section};
use crate::telemetry::logging::{LogFilter, LogFormat};

section! { "Process";
    /// Exit when the queue is empty: no message is unread, pending, parked or delayed, and none waits in an
    /// outbox.
    UNTIL_EMPTY: bool = ("until_empty", "BOOL").default("false");

    /// The longest time that `until_empty` may take. Then the host drains and exits with code 75.
    UNTIL_EMPTY_TIMEOUT: Duration = ("until_empty_timeout", "DURATION")
        .unset("no limit")
        .only_with(&UNTIL_EMPTY);

    /// The longest time that running attempts may take to end after SIGTERM or Ctrl-C. Keep it below the time
    /// after which your supervisor kills the process (Kubernetes: 30 s).
    DRAIN_TIMEOUT: Duration = ("drain_timeout", "DURATION")
        .default("25s")
        .range(|| (Duration::ZERO, DAY));

    /// The output on stdout at the end: `none`, or `json` = one line with the counters of the host.
    SUMMARY: SummaryFormat = ("summary", "FORMAT").default("none");

    /// The address of `/metrics`, `/live`, `/ready` and `/status`. A port alone means loopback.
    ADMIN: SocketAddr = ("admin", "ADDRESS").unset("not served");

    /// Serve the dashboard at `/ui` of that address. It only reads, unless there is a token.
    UI: bool = ("ui", "BOOL").default("false").only_with(&ADMIN);

    /// A file with the token for the actions of the dashboard. White space at its end is ignored.
    UI_TOKEN_FILE: PathBuf = ("ui_token_file", "FILE").unset("the dashboard only reads").only_with(&UI);

    /// The format of log lines on stderr: `pretty`, `json`, or `auto` = pretty on a terminal, JSON otherwise.
    LOG_FORMAT: LogFormat = ("log.format", "FORMAT").default("auto");

    /// The lines that are logged: `error`, `warn`, `info`, `debug`, `trace` or `off` for hostler and its
    /// handlers, or directives by target such as `info,guest=off`.
    LOG_LEVEL: LogFilter = ("log.level", "LEVEL").default("info");
}
