//! Which start comes next, what must be recorded before it, and who runs alone.
//!
//! Redis counts deliveries, not starts. The count that it keeps for a delivery (*native count*)
//! and the starts charged before the message came to this queue (*header*) add up to the starts
//! charged so far; the rules below say how the two move. `docs/attempts.md` explains each rule by
//! what goes wrong without it.

/// What may happen next to a delivery that this host holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// It may be started, once this is recorded.
    Start(Start),
    /// It has no start left.
    Exhausted {
        /// Starts charged in all.
        attempts: u32,
    },
}

/// The next start of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Start {
    /// Which start this is, 1-based.
    pub attempt: u32,
    /// The native count to write before the handler runs; `None` = the count already stands for it.
    pub record: Option<u32>,
}

/// The native count of a recorded start where the first delivery is already the last
/// (`header + 1 = cap`), whatever it was before: so there a count of 1 or less proves that the
/// message never started.
const LAST_START: u32 = 2;

/// What comes next for a delivery with this retry-count header and native count.
///
/// `fresh`: read with `XREADGROUP >` (or popped for the first time) and not started yet, so that
/// its native count of 1 already stands for its first start.
pub fn standing(header: u32, native: u32, fresh: bool, cap: Option<u32>) -> Standing {
    let start = |attempt, record| Standing::Start(Start { attempt, record });
    match cap.map(|cap| cap.saturating_sub(header)) {
        Some(0) => Standing::Exhausted { attempts: header },
        Some(1) if native >= LAST_START => Standing::Exhausted {
            attempts: header + 1,
        },
        Some(1) => start(header + 1, Some(LAST_START)),
        Some(_) | None if fresh => start(header.saturating_add(1), None),
        Some(budget) if native >= budget => Standing::Exhausted {
            attempts: header + native,
        },
        Some(_) | None => start(
            header.saturating_add(native).saturating_add(1),
            Some(native.saturating_add(1)),
        ),
    }
}

/// Where an orphan may run: with everything else, or alone on its host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// Beside other deliveries.
    Normal,
    /// With nothing else in flight on its host: it may be what killed the last one.
    Alone,
}

/// The lane of a delivery whose host died: one charge runs with the others, so that a deploy that
/// kills a host does not stall its successors; two charges, or one start left, run alone, so that
/// a message that kills hosts takes no innocent with it.
pub fn orphan_lane(header: u32, native: u32, cap: Option<u32>) -> Lane {
    let budget = cap.map(|cap| cap.saturating_sub(header));
    let never_started = native == 0 || (budget == Some(1) && native < LAST_START);
    if never_started {
        return Lane::Normal;
    }
    let one_left = budget.is_some_and(|budget| budget.saturating_sub(native) <= 1);
    if native >= 2 || one_left {
        Lane::Alone
    } else {
        Lane::Normal
    }
}
