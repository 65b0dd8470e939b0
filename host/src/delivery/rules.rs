//! The rules of attempts, suspects and leases by name, so that the model of the tests can take one
//! out and see what breaks. Outside tests every rule holds, at no cost.

/// One rule that the ledger, the scripts or the executor keep, with its number in
/// `docs/attempts.md`, which has them in words and says what breaks without.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rule {
    /// 1: where the first delivery is already the last, a recorded start is always 2.
    LastStartIsTwo,
    /// 2: a start is recorded by a script that checks owner and count (`record.lua`).
    #[cfg(test)]
    RecordsCheck,
    /// 3: orphans are listed and claimed in one script, which leaves the count alone.
    #[cfg(test)]
    ClaimsKeepCounts,
    /// 4: a delivery that comes again while its attempt runs waits for that one's end.
    OneRunAtATime,
    /// 5: what never started goes back with the count it had before.
    HandBackUncharged,
    /// 6: a suspect with two charges, or one start left, runs alone.
    SuspectsRunAlone,
    /// 7: alone means that settlements not yet confirmed have ended, too.
    AloneAwaitsSettlements,
    /// 8: a suspect that must run alone is left, not parked, on drain.
    SuspectsAreLeftOnDrain,
    /// 9: normal traffic gets its share between alone runs.
    FairShare,
    /// 10: one slot is kept for orphans and due deliveries.
    ReservedSlot,
    /// 11: own entries that the host does not hold are adopted.
    #[cfg(test)]
    AdoptUnknown,
    /// 12: renewal checks the owner.
    #[cfg(test)]
    RenewalChecks,
    /// 12: nothing starts on a lease that was not confirmed within `min_idle`.
    LeaseBeforeStart,
    /// 13: a parked delivery that the set does not name is due now.
    #[cfg(test)]
    StrandedParkedAreDue,
    /// 15: what sends a delivery away and is asked again voids what was asked before (`fence.lua`).
    #[cfg(test)]
    RepeatsVoid,
}

#[cfg(not(test))]
impl Rule {
    /// Always.
    pub(crate) const fn holds(self) -> bool {
        true
    }
}

#[cfg(test)]
thread_local! {
    static TAKEN_OUT: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
impl Rule {
    pub(crate) fn holds(self) -> bool {
        TAKEN_OUT.get() != Some(self)
    }

    /// Run `body` on this thread without this rule.
    pub(crate) fn taken_out<T>(rule: Option<Self>, body: impl FnOnce() -> T) -> T {
        TAKEN_OUT.set(rule);
        let result = body();
        TAKEN_OUT.set(None);
        result
    }
}
