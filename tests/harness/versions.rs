//! Versions of a handler whose faults are known: components made of text.

use crate::guests::handler;

/// How a version fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failing {
    /// It traps.
    Trap,
    /// It wants another attempt.
    Nack,
}

/// A version that fails at every message whose first byte is below `limit`, and acknowledges the
/// rest: with first bytes from 0 to 99, `limit` is a percentage. `tag` makes its digest its own.
pub fn failing(limit: u8, how: Failing, tag: &str) -> Vec<u8> {
    let fail = match how {
        Failing::Trap => "unreachable",
        // The case `nack-requeue`, without a delay.
        Failing::Nack => "(i32.store8 (i32.const 64) (i32.const 1)) (return (i32.const 64))",
    };
    handler(
        &format!("(data (i32.const 512) \"{tag}\")"),
        &format!(
            "(if (i32.lt_u (i32.load8_u (local.get 4)) (i32.const {limit})) (then {fail}))
             (i32.const 0)"
        ),
    )
}

/// One that acknowledges everything.
pub fn good(tag: &str) -> Vec<u8> {
    failing(0, Failing::Trap, tag)
}

/// One that traps on everything.
pub fn bad(tag: &str) -> Vec<u8> {
    failing(255, Failing::Trap, tag)
}
