//! The progress of long work, on stderr, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output;

const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// A counter or a bar; hidden where stderr is not a terminal.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Count without a known total.
    pub(super) fn counting(what: &str) -> Self {
        let template = format!("{{spinner}} {{human_pos}} {what} ({{per_sec}})");
        Self::drawn(ProgressBar::no_length(), &template)
    }

    /// Count up to a total.
    pub(super) fn of(total: u64, what: &str) -> Self {
        let template = format!("{{spinner}} {{pos}} of {{len}} {what} {{wide_bar}} {{eta}}");
        Self::drawn(ProgressBar::new(total), &template)
    }

    fn drawn(bar: ProgressBar, template: &str) -> Self {
        if !output::is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.enable_steady_tick(REDRAW_EVERY);
        Self(bar)
    }

    /// Count more.
    pub(super) fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    /// Remove it from the terminal.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
