//! Every setting, once. Their order is the order of `--help`, `check` and the documentation.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::setting::Definition;
use crate::config::value::{ByteSize, Invalid, Value};

pub(super) mod dead_letters;
pub(super) mod development;
pub(super) mod failures;
pub(super) mod grants;
pub(super) mod handler;
pub(super) mod limits;
pub(super) mod process;
pub(super) mod queue;
pub(super) mod server;
pub(super) mod swap;

/// Settings that belong together.
pub struct Section {
    /// What they are about.
    pub title: &'static str,
    /// The settings.
    pub settings: &'static [&'static dyn Definition],
}

/// Every setting there is.
pub static SECTIONS: [&Section; 10] = [
    &server::SECTION,
    &queue::SECTION,
    &handler::SECTION,
    &swap::SECTION,
    &failures::SECTION,
    &dead_letters::SECTION,
    &limits::SECTION,
    &grants::SECTION,
    &process::SECTION,
    &development::SECTION,
];

/// Every setting, in order.
pub fn all() -> impl Iterator<Item = &'static dyn Definition> {
    SECTIONS
        .iter()
        .flat_map(|section| section.settings)
        .copied()
}

/// The setting of this key.
pub fn find(key: &str) -> Option<&'static dyn Definition> {
    all().find(|setting| setting.key() == key)
}

/// The keys of all settings that may change under a running host, for people.
pub fn live_keys() -> String {
    let keys = all().filter(|setting| setting.is_live());
    let keys: Vec<String> = keys.map(|s| format!("`{}`", s.key())).collect();
    keys.join(", ")
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn between(value: &Duration, low: Duration, high: Duration) -> Result<(), Invalid> {
    bounded(
        value.show(),
        *value >= low,
        &low.show(),
        *value <= high,
        &high.show(),
    )
}

fn sized(value: &ByteSize, low: ByteSize, high: ByteSize) -> Result<(), Invalid> {
    bounded(
        value.show(),
        *value >= low,
        &low.show(),
        *value <= high,
        &high.show(),
    )
}

fn in_range(value: f64, low: f64, high: f64) -> Result<(), Invalid> {
    bounded(
        value.show(),
        value >= low,
        &low.show(),
        value <= high,
        &high.show(),
    )
}

fn at_most(value: &NonZeroU32, high: u32) -> Result<(), Invalid> {
    bounded(
        value.show(),
        true,
        "1",
        value.get() <= high,
        &high.to_string(),
    )
}

fn bounded(
    value: String,
    high_enough: bool,
    low: &str,
    low_enough: bool,
    high: &str,
) -> Result<(), Invalid> {
    if high_enough && low_enough {
        return Ok(());
    }
    let what = if high_enough { "more" } else { "less" };
    Err(Invalid::new(format!("`{value}` is {what} than allowed"))
        .hint(format!("the range is {low} to {high}")))
}
