//! Every setting, defined once. This order is the order of `--help`, `check` and the documentation.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::setting::Definition;

pub(super) mod dead_letters;
pub(super) mod dedup;
pub(super) mod development;
pub(super) mod failures;
pub(super) mod flow;
pub(super) mod grants;
pub(super) mod handler;
pub(super) mod hold;
pub(super) mod journal;
pub(super) mod limits;
pub(super) mod process;
pub(super) mod program;
pub(super) mod queue;
pub(super) mod reply;
pub(super) mod schedule;
pub(super) mod server;
pub(super) mod swap;
pub(super) mod telemetry;

/// A group of settings.
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The settings.
    pub settings: &'static [&'static dyn Definition],
}

/// Defines the settings of a section, and lists them as `SECTION`. The doc comment of a setting is its
/// meaning in `--help` and in the documentation.
macro_rules! section {
    ($title:literal; $(
        $(#[doc = $meaning:literal])+
        $name:ident: $type:ty = ($key:literal, $placeholder:literal) $(.$rule:ident($($value:tt)*))*;
    )+) => {
        pub(in crate::config) static SECTION: $crate::config::settings::Section =
            $crate::config::settings::Section { title: $title, settings: &[$(&$name),+] };

        $(
            $(#[doc = $meaning])+
            pub(in crate::config) static $name: $crate::config::setting::Setting<$type> =
                $crate::config::setting::Setting::new(
                    $key,
                    $placeholder,
                    concat!($($meaning),+).trim_ascii(),
                ) $(.$rule($($value)*))*;
        )+
    };
}
use section;

/// Every setting.
pub static SECTIONS: [&Section; 18] = [
    &server::SECTION,
    &queue::SECTION,
    &handler::SECTION,
    &program::SECTION,
    &swap::SECTION,
    &failures::SECTION,
    &hold::SECTION,
    &flow::SECTION,
    &reply::SECTION,
    &schedule::SECTION,
    &dead_letters::SECTION,
    &dedup::SECTION,
    &limits::SECTION,
    &grants::SECTION,
    &journal::SECTION,
    &process::SECTION,
    &telemetry::SECTION,
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

/// The key of the setting that pauses a queue.
pub fn paused_key() -> &'static str {
    queue::PAUSED.key()
}

/// The setting that names the dead-letter queue.
pub fn dead_letter_key() -> &'static str {
    dead_letters::DEAD_LETTER_KEY.key()
}

/// The keys of all settings that may change while a host runs, for people.
pub fn live_keys() -> String {
    let keys = all().filter(|setting| setting.is_live());
    let keys: Vec<String> = keys.map(|s| format!("`{}`", s.key())).collect();
    keys.join(", ")
}

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The numbers from 1 to this one.
fn up_to(high: u32) -> (NonZeroU32, NonZeroU32) {
    let high = NonZeroU32::new(high).unwrap_or(NonZeroU32::MIN);
    (NonZeroU32::MIN, high)
}
