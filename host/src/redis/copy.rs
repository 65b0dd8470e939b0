//! How a copy of a message is written: a stream takes its fields, a list its value.

use redis::Cmd;

use crate::wire::Raw;

/// Lua's `unpack` cannot pass more than about 8,000 values.
const FIELDS_IN_SCRIPT: usize = 3500;

/// The command that writes this copy.
pub(crate) fn command(copy: &Raw) -> &'static str {
    match copy {
        Raw::Fields(_) => "XADD",
        Raw::Value(_) => "LPUSH",
    }
}

/// Whether a script can write this copy.
pub(crate) fn fits_script(copy: &Raw) -> bool {
    !matches!(copy, Raw::Fields(fields) if fields.len() > FIELDS_IN_SCRIPT)
}

/// The bytes of this copy.
pub(crate) fn size(copy: &Raw) -> usize {
    match copy {
        Raw::Fields(fields) => fields.iter().map(|(n, v)| n.len() + v.len()).sum(),
        Raw::Value(value) => value.len(),
    }
}

/// Add this copy to the arguments of a command.
pub(crate) fn push(copy: &Raw, command: &mut Cmd) {
    match copy {
        Raw::Fields(fields) => {
            for (name, value) in fields {
                command.arg(&name[..]).arg(&value[..]);
            }
        }
        Raw::Value(value) => {
            command.arg(&value[..]);
        }
    }
}
