//! Each scene in many orders of its threads: half of them at random, half by priorities that change a few times
//! (PCT, Burckhardt et al. 2010), which finds faults that need few switches.
//!
//! A failure prints a schedule; `shuttle::replay` runs it again.

use interleavings::scenes;

/// Orders of each kind; `HOSTLER_ORDERS` names another number.
const ORDERS: usize = 5_000;
/// The most changes of priority.
const SWITCHES: usize = 3;

fn check(scene: fn()) {
    let named = std::env::var("HOSTLER_ORDERS").ok();
    let orders = named.map_or(ORDERS, |number| number.parse().expect("a number"));
    shuttle::check_random(scene, orders);
    shuttle::check_pct(scene, orders, SWITCHES);
}

macro_rules! scenes {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(scenes::$name);
            }
        )*
    };
}

scenes! {
    a_ticket_is_taken_or_revoked_and_never_both
    a_lease_keeps_its_latest_confirmation
    each_ticket_ends_once_and_every_slot_ends
    tickets_that_come_together_wake_a_slot_each
    a_slot_that_stops_waiting_loses_no_ticket
    batches_hold_each_ticket_once
    no_event_is_lost_while_the_driver_sleeps
    a_change_holds_for_all_who_look_after_it
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    check(scenes::a_lost_wake_up);
}
