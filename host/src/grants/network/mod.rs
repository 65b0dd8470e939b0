//! The hosts and addresses that rules name. DNS answers, then the address is checked.

pub mod address;
pub(super) mod names;
pub mod reach;
