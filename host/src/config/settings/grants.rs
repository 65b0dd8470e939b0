//! Interfaces that a handler gets only on request.

use crate::config::settings::section;
use crate::sandbox::Values;

section! { "Grants";
    /// Grant `wasi:config/store`, with these values. Without the grant, a component that imports it is
    /// refused. In a file it is a table, `[grant.config]`; in a flag or a variable, a JSON object.
    CONFIG: Values = ("grant.config", "JSON").unset("not granted");
}
