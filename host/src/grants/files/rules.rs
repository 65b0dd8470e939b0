//! The directories of the host that a handler may read: `[[grant.files]]`.

use std::path::PathBuf;

use crate::values::Value;
use crate::values::schema::text;
use crate::values::table::{printed, rule, with_value};

rule! {
    /// A directory of the host that a handler may read.
    pub struct Directory: "directory", "{\"path\":\"/usr/lib/python3.11\",\"at\":\"/lib\"}";
    /// The directory on the host.
    required path: PathBuf, as text("^/");
    /// Where the handler finds it.
    required at: String, as text("^/");
    settle |directory, table, others| {
        let (path, at) = (directory.path.show(), &directory.at);
        if !path.starts_with('/') {
            let why = with_value(&path, "is not an absolute path");
            table.problem(format!("`path`: {why}"));
        }
        if !at.starts_with('/') {
            let why = with_value(at, "does not start with `/`");
            table.problem(format!("`at`: {why}"));
        }
        if others.iter().any(|other| other.at == *at) {
            table.problem(format!("`at` = `{}` is there twice", printed(at)));
        }
    };
}
