//! How the process lives, talks and ends.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::choices::SummaryFormat;
use crate::config::setting::Setting;
use crate::config::settings::{DAY, Section, between};
use crate::telemetry::logging::{LogFilter, LogFormat};

pub(super) static SECTION: Section = Section {
    title: "Process",
    settings: &[
        &UNTIL_EMPTY,
        &UNTIL_EMPTY_TIMEOUT,
        &DRAIN_TIMEOUT,
        &SUMMARY,
        &ADMIN,
        &LOG_FORMAT,
        &LOG_LEVEL,
    ],
};

pub(in crate::config) static UNTIL_EMPTY: Setting<bool> = Setting::new(
    "until_empty",
    "BOOL",
    "Exit when the queue holds nothing to do: no unread, pending, parked or delayed message.",
)
.default("false");

pub(in crate::config) static UNTIL_EMPTY_TIMEOUT: Setting<Duration> = Setting::new(
    "until_empty_timeout",
    "DURATION",
    "How long `until_empty` may take before the host drains and exits with code 75.",
)
.unset("as long as it takes");

pub(in crate::config) static DRAIN_TIMEOUT: Setting<Duration> = Setting::new(
    "drain_timeout",
    "DURATION",
    "How long running attempts may take to end after SIGTERM or Ctrl-C. Keep it below the time \
     that your supervisor gives before it kills (Kubernetes: 30 s).",
)
.default("25s")
.check(|d| between(d, Duration::ZERO, DAY));

pub(in crate::config) static SUMMARY: Setting<SummaryFormat> = Setting::new(
    "summary",
    "FORMAT",
    "What is printed on stdout on exit: `none`, or `json` = one line with what happened.",
)
.default("none");

pub(in crate::config) static ADMIN: Setting<SocketAddr> = Setting::new(
    "admin",
    "ADDRESS",
    "Serve `/metrics`, `/live` and `/ready` on this address. A port alone means loopback.",
)
.unset("not served");

pub(in crate::config) static LOG_FORMAT: Setting<LogFormat> = Setting::new(
    "log.format",
    "FORMAT",
    "How log lines on stderr look: `pretty`, `json`, or `auto` = pretty on a terminal, JSON \
     otherwise.",
)
.default("auto");

pub(in crate::config) static LOG_LEVEL: Setting<LogFilter> = Setting::new(
    "log.level",
    "LEVEL",
    "What is logged: `error`, `warn`, `info`, `debug`, `trace` or `off` for hostler and its \
     handlers, or directives by target such as `info,guest=off`.",
)
.default("info");
