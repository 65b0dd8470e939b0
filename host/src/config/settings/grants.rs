//! What a handler may have beyond what every handler has.

use crate::config::setting::Setting;
use crate::config::settings::Section;
use crate::sandbox::Values;

pub(super) static SECTION: Section = Section {
    title: "Grants",
    settings: &[&CONFIG],
};

pub(in crate::config) static CONFIG: Setting<Values> = Setting::new(
    "grant.config",
    "JSON",
    "Grant `wasi:config/store`, with these values. Without it a component that imports that is \
     refused. In a file it is a table, `[grant.config]`; as a flag or a variable a JSON object.",
)
.unset("not granted");
