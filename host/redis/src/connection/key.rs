//! The slot of a command: where its first key stands.

use redis::{Arg, Cmd};

use hostler_core::wire::keys;

/// Commands without a key: any node answers them, for itself or for all.
const WITHOUT_KEY: [&[u8]; 19] = [
    b"ACL",
    b"AUTH",
    b"CLIENT",
    b"CLUSTER",
    b"COMMAND",
    b"CONFIG",
    b"DBSIZE",
    b"EXEC",
    b"HELLO",
    b"INFO",
    b"MULTI",
    b"PING",
    b"PUBLISH",
    b"ROLE",
    b"SCRIPT",
    b"SELECT",
    b"SENTINEL",
    b"TIME",
    b"WAIT",
];
/// Commands whose second word is no key, but names what they do.
const WITH_SUBCOMMAND: [&[u8]; 4] = [b"MEMORY", b"OBJECT", b"XGROUP", b"XINFO"];

/// The slot of the first key of a command; `None` if it has no key.
pub(super) fn slot(cmd: &Cmd) -> Option<u16> {
    let mut words = cmd.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => &[],
    });
    let command = words.next()?;
    let is = |name: &&[u8]| command.eq_ignore_ascii_case(name);
    let key = match command {
        _ if WITHOUT_KEY.iter().any(is) => return None,
        _ if WITH_SUBCOMMAND.iter().any(is) => words.nth(1),
        // Behind the digest stands the number of the keys.
        _ if command.eq_ignore_ascii_case(b"EVALSHA") => match words.nth(1)? {
            b"0" => None,
            _ => words.next(),
        },
        // Behind the timeout stands the number of the keys.
        _ if command.eq_ignore_ascii_case(b"BLMPOP") => words.nth(2),
        // It looks through one node: that of the keys that share the tag of the pattern.
        _ if command.eq_ignore_ascii_case(b"SCAN") => {
            words.find(|word| word.eq_ignore_ascii_case(b"MATCH"))?;
            let pattern = words.next()?;
            let plain: Vec<u8> = pattern.iter().copied().filter(|&c| c != b'\\').collect();
            return plain.contains(&b'{').then(|| keys::slot_of_bytes(&plain));
        }
        _ if command.eq_ignore_ascii_case(b"XREADGROUP") => {
            // A group, or a consumer, may have any name.
            words.nth(2)?;
            words.find(|word| word.eq_ignore_ascii_case(b"STREAMS"))?;
            words.next()
        }
        _ if command.eq_ignore_ascii_case(b"XREAD") => {
            words.find(|word| word.eq_ignore_ascii_case(b"STREAMS"))?;
            words.next()
        }
        _ => words.next(),
    };
    key.map(keys::slot_of_bytes)
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    #[test]
    fn the_slot_is_that_of_the_first_key() {
        let words = |text: &str| {
            let mut words = text.split(' ');
            let mut command = cmd(words.next().unwrap());
            words.for_each(|word| {
                command.arg(word);
            });
            slot(&command)
        };
        let orders = Some(keys::slot("orders"));
        for command in [
            "XADD orders * a b",
            "xack orders g 1-0",
            "EVALSHA abc 2 orders dead 1",
            "XREADGROUP GROUP streams c COUNT 1 STREAMS orders >",
            "XINFO STREAM orders",
            "BLMPOP 0.5 1 orders LEFT",
            "XGROUP CREATE orders g 0",
            "TYPE {orders}:delayed",
            "SCAN 0 MATCH {orders}:kv:a\\*b* COUNT 10",
        ] {
            assert_eq!(words(command), orders, "{command}");
        }
        for command in [
            "PING",
            "EVALSHA abc 0 orders",
            "info",
            "SCRIPT LOAD orders",
            "SCAN 0",
        ] {
            assert_eq!(words(command), None, "{command}");
        }
    }
}
