//! The rules of attempts, suspects and leases by name. The model in the tests takes out one rule and
//! looks which promise breaks. Outside tests every rule holds, at no cost.

/// One rule that the ledger, the scripts or the executor keep. `docs/attempts.md` explains them by
/// these numbers, and says what breaks without each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rule {
    /// 1: if the first delivery is already the last, a recorded start is always 2.
    LastStartIsTwo,
    /// 2: a start is recorded by a script that checks owner and count (`record.lua`).
    #[cfg(test)]
    RecordsCheck,
    /// 3: one script lists and claims orphans, and keeps their counts.
    #[cfg(test)]
    ClaimsKeepCounts,
    /// 4: a delivery that is claimed again while its attempt runs waits until that attempt ends.
    OneRunAtATime,
    /// 5: a delivery that never started goes back with the count that it had before.
    HandBackUncharged,
    /// 6: a suspect with two charges, or with one start left, runs isolated.
    SuspectsRunIsolated,
    /// 7: an isolated run waits for unconfirmed settlements, too.
    IsolationAwaitsSettlements,
    /// 8: on drain, a suspect that must run isolated is left, not parked.
    SuspectsAreLeftOnDrain,
    /// 9: normal traffic gets its share between isolated runs.
    FairShare,
    /// 10: one place is reserved for orphans and due deliveries.
    ReservedSlot,
    /// 11: a host adopts own entries that it does not hold.
    #[cfg(test)]
    AdoptUnknown,
    /// 26: a delivery that is missing although its lease lasts is brought back.
    MissingIsBroughtBack,
    /// 27: a late acknowledgement is noted, so that the next owner does not bring the delivery back.
    #[cfg(test)]
    LateAcksAreNoted,
    /// 28: the record of a parked delivery goes when its host is known to have the claim.
    #[cfg(test)]
    RecordsOutliveAnswers,
    /// 29: a group that is made again begins before what was read without an answer.
    #[cfg(test)]
    UnansweredReadsComeAgain,
    /// 24: any host takes what a dead host held, whatever the name of that host (`list_lapsed.lua`).
    #[cfg(test)]
    OrphansOfEveryName,
    /// 12: renewal checks the owner.
    #[cfg(test)]
    RenewalChecks,
    /// 12: nothing starts unless its lease was confirmed within `min_idle`.
    LeaseBeforeStart,
    /// 13: a parked delivery that the set does not name is due now.
    #[cfg(test)]
    StrandedParkedAreDue,
    /// 15: a repeated request that sends a delivery away voids the first one (`fence.lua`).
    #[cfg(test)]
    RepeatsVoid,
    /// 16: a settlement that Redis refuses is tried again under the rules in force.
    SettlementsFollowTheRules,
    /// 16: where the dead-letter key was taken away, dead letters wait.
    TakingTheKeyDiscardsNothing,
    /// 17: the gate's refusals never start.
    TurnedAwayNeverStarts,
    /// 18: a host says that a delivery is gone only if its group is still the one that it knows
    /// (`parts/epoch.lua`).
    #[cfg(test)]
    GoneIsProven,
    /// 18: a host that finds its group missing, or made again, takes back there what it holds before it
    /// settles anything.
    #[cfg(test)]
    RepairBeforeSettling,
    /// 20: where attempts have effects, an acknowledgement checks owner and count: a late one without its
    /// effects would void those of the next owner.
    AcksWithEffectsAreChecked,
    /// 21: an acknowledgement compares the values that its attempt read: without that, one of two
    /// concurrent updates is lost.
    #[cfg(test)]
    ValuesAreCompared,
    /// 22: an attempt whose values had changed runs again under the same charge.
    RerunsAreUncharged,
    /// 25: effects that a key of another type refuses are a failure of their attempt.
    UnfitEffectsFail,
    /// 31: a start that ends with a hold is not charged.
    HoldsAreFree,
    /// 31: a hold without an answer is charged.
    UnansweredHoldsAreCharged,
    /// 32: the intent of a call is written before the request leaves.
    #[cfg(test)]
    IntentsComeFirst,
    /// 33: an answer is recorded before the handler sees it.
    #[cfg(test)]
    AnswersAreRecordedFirst,
    /// 33: the first answer stands.
    #[cfg(test)]
    FirstAnswerStands,
    /// 34: an intent that another attempt has found open is never removed: only an answer takes its place.
    #[cfg(test)]
    OpenIntentsStay,
    /// 35: a message that leaves its queue takes its journal along.
    #[cfg(test)]
    ExitsTakeTheJournal,
    /// 36: a cancelled delivery that a host has is noted, so that the host does not bring it back (`cancel.lua`).
    #[cfg(test)]
    CancelsAreNoted,
    /// 37: a delivery that a host takes from another is noted, so that the other does not bring it back (`orphans.lua`).
    #[cfg(test)]
    TakeoversAreNoted,
    /// 39: where starts are limited, each one is admitted first.
    StartsAreAdmitted,
    /// 40: a host says again and again how many permits it has.
    PermitsAreRenewed,
    /// 40: of two requests of a host the later one says how many permits it has (`admit.lua`).
    #[cfg(test)]
    LaterNumbersStand,
    /// 30: when attempts become slow, messages that a host does not start soon go back.
    ExcessGoesBack,
    /// 19: deliveries that were parked in an earlier group are parked again.
    #[cfg(test)]
    ParkedAgain,
    /// 23: an acknowledgement with effects that was carried out in an earlier group is not brought back
    /// (`readopt.lua`).
    #[cfg(test)]
    ActedStaysSettled,
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
