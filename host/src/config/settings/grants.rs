//! Interfaces that a handler gets only on request.

use crate::config::rules::{HttpRules, SecretRules, TcpRules};
use crate::config::settings::section;
use crate::sandbox::Values;

section! { "Grants";
    /// Grant `wasi:config/store`, with these values. Without the grant, a component that imports it is
    /// refused. In a file it is a table, `[grant.config]`; in a flag or a variable, a JSON object.
    /// New values in the file apply at once.
    CONFIG: Values = ("grant.config", "JSON").unset("not granted").live_in_file();

    /// Secrets: each is the content of a `file`, or the value of a `variable`. Headers of `grant.http` may
    /// hold them; a handler may read those with `expose = true`. In a file it is a table, `[grant.secret]`.
    SECRETS: SecretRules = ("grant.secret", "JSON").unset("not granted");

    /// The HTTP requests that a handler may send. In a file it is an array of tables, `[[grant.http]]`.
    HTTP: HttpRules = ("grant.http", "JSON").unset("not granted");

    /// The servers to which a handler may connect by TCP. In a file it is an array of tables,
    /// `[[grant.tcp]]`.
    TCP: TcpRules = ("grant.tcp", "JSON").unset("not granted");
}
