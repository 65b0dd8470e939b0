//! The rights that a queue needs, and which of them its user lacks.
//!
//! [`needed`] names every command that is sent to Redis, by Rust or by a script, with the keys it
//! is sent for. What only makes things nicer (`CLIENT SETNAME`, `CLIENT ID`, `CLIENT UNBLOCK`,
//! `ACL DRYRUN` itself) is not in it.

use redis::{Cmd, Pipeline, Value};

use super::connection::Link;
use super::error::Error;
use super::list::ListOptions;
use super::pubsub::PubSubOptions;
use super::reply;
use super::simple_list::SimpleListOptions;
use super::stream::{Retention, StreamOptions};
use crate::wire::keys;

/// A command as it could be sent, and how an ACL names it.
pub(super) struct Need {
    grant: String,
    words: Vec<String>,
}

impl Need {
    /// The right to send this command with these arguments.
    pub(super) fn new(command: &str, arguments: &[&str]) -> Self {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let grant = words.join("|").to_lowercase();
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        Self {
            grant,
            words: words.into_iter().chain(arguments).collect(),
        }
    }
}

/// Every command that serving this stream needs.
pub(super) fn stream(options: &StreamOptions) -> Vec<Need> {
    let parked = keys::parked(&options.key, &options.group);
    let fences = keys::fences(&options.key, &options.group);
    let mut needs = Vec::new();
    let mut need = |command: &str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    let key = options.key.as_str();
    need("INFO", &[]);
    need("TIME", &[]);
    need("SCRIPT LOAD", &["return 1"]);
    need("TYPE", &[key]);
    need("EXISTS", &[key]);
    need(
        "XREADGROUP",
        &["GROUP", "g", "c", "COUNT", "1", "STREAMS", key, ">"],
    );
    need("XACK", &[key, "g", "0-1"]);
    need("XPENDING", &[key, "g"]);
    need("XCLAIM", &[key, "g", "c", "0", "0-1"]);
    need("XRANGE", &[key, "-", "+"]);
    need("XGROUP CREATE", &[key, "g", "0"]);
    need("XGROUP DELCONSUMER", &[key, "g", "c"]);
    need("XINFO GROUPS", &[key]);
    need("XINFO CONSUMERS", &[key, "g"]);
    need("XINFO STREAM", &[key]);
    if options.retention != Retention::Keep {
        need("XTRIM", &[key, "MINID", "0-1"]);
        need("XLEN", &[key]);
    }
    if options.max_length.is_some() {
        need("XLEN", &[key]);
    }
    need("ZADD", &[&parked, "1", "0-1"]);
    need("ZREM", &[&parked, "0-1"]);
    need("ZSCORE", &[&parked, "0-1"]);
    need("ZRANGE", &[&parked, "0", "0"]);
    need("ZRANGEBYSCORE", &[&parked, "0", "1"]);
    need("ZADD", &[&fences, "GT", "1", "c"]);
    need("ZREM", &[&fences, "c"]);
    need("ZSCORE", &[&fences, "c"]);
    let delayed = keys::delayed(&options.key);
    need("XADD", &[key, "*", "name", "value"]);
    need("ZREM", &[&delayed, "m"]);
    need("ZCARD", &[&delayed]);
    need("ZRANGE", &[&delayed, "0", "0"]);
    need("ZRANGEBYSCORE", &[&delayed, "0", "1"]);
    need("EVALSHA", &["0", "2", key, &parked]);
    need("EVALSHA", &["0", "2", key, &delayed]);
    need("EVALSHA", &["0", "3", key, &parked, &fences]);
    if let Some(dead_letter) = &options.dead_letter {
        for dead in dead_letter.targets(key) {
            let dead = dead.as_str();
            need("TYPE", &[dead]);
            need("XADD", &[dead, "*", "name", "value"]);
            need("XLEN", &[dead]);
            need("EVALSHA", &["0", "2", key, dead]);
        }
    }
    needs
}

/// Every command that serving this reliable list needs. `BLMOVE` is not among them: without it, a
/// host polls.
pub(super) fn list(options: &ListOptions) -> Vec<Need> {
    let key = options.key.as_str();
    let retry = keys::retry(key);
    let delayed = keys::delayed(key);
    let instances = keys::instances(key);
    // Every instance has its own: any name will do.
    let processing = keys::processing(key, "i");
    let started = keys::started(key, "i");
    let mut needs = Vec::new();
    let mut need = |command: &str, arguments: &[&str]| needs.push(Need::new(command, arguments));
    need("INFO", &[]);
    need("TIME", &[]);
    need("SCRIPT LOAD", &["return 1"]);
    for list in [key, &retry, &processing] {
        need("TYPE", &[list]);
        need("LLEN", &[list]);
        need("LRANGE", &[list, "0", "1"]);
    }
    for list in [key, &retry] {
        need("LTRIM", &[list, "0", "1"]);
        need("LPUSH", &[list, "v"]);
        need("RPUSH", &[list, "v"]);
    }
    need("LPUSH", &[&processing, "v"]);
    need("LREM", &[&processing, "1", "v"]);
    need("LPOS", &[&processing, "v"]);
    need("HSET", &[&started, "t", "1"]);
    need("HGET", &[&started, "t"]);
    need("HDEL", &[&started, "t"]);
    need("DEL", &[&started]);
    let sets = [
        Some(&delayed),
        Some(&instances),
        options.recovery.as_ref().map(|r| &r.key),
    ];
    for set in sets.into_iter().flatten() {
        need("TYPE", &[set]);
        need("ZADD", &[set, "1", "m"]);
        need("ZREM", &[set, "m"]);
        need("ZSCORE", &[set, "m"]);
        need("ZCARD", &[set]);
        need("ZRANGE", &[set, "0", "0"]);
        need("ZRANGEBYSCORE", &[set, "0", "1"]);
    }
    if let Some(recovery) = &options.recovery {
        need("PEXPIRE", &[&recovery.key, "1"]);
    }
    need("EVALSHA", &["0", "2", key, &processing]);
    if let Some(dead_letter) = &options.dead_letter {
        for dead in dead_letter.targets(key) {
            let dead = dead.as_str();
            need("TYPE", &[dead]);
            need("LPUSH", &[dead, "v"]);
            need("LLEN", &[dead]);
            need("LTRIM", &[dead, "0", "1"]);
            need("EVALSHA", &["0", "2", &processing, dead]);
        }
    }
    needs
}

/// Every command that serving this simple list needs.
pub(super) fn simple_list(options: &SimpleListOptions) -> Vec<Need> {
    let key = options.key.as_str();
    vec![
        Need::new("INFO", &[]),
        Need::new("TYPE", &[key]),
        Need::new("LLEN", &[key]),
        Need::new("LMPOP", &["1", key, "RIGHT"]),
        Need::new("BLMPOP", &["1", "1", key, "RIGHT"]),
    ]
}

/// Every command that serving this subscription needs.
pub(super) fn pubsub(options: &PubSubOptions) -> Vec<Need> {
    let command = options.subscription.command();
    vec![Need::new("INFO", &[]), Need::new(command, &[&options.name])]
}

/// Who we are, and the rules that we lack: `+command`, `~key` or `&channel`. `None` if the server cannot tell,
/// or will not tell us.
pub(super) async fn lacking(
    link: &Link,
    needs: &[Need],
) -> Result<Option<(String, Vec<String>)>, Error> {
    const COMMAND: &str = "ACL DRYRUN";
    let mut whoami = Cmd::new();
    whoami.arg("ACL").arg("WHOAMI");
    let user = match link.call("ACL WHOAMI", &whoami).await {
        Ok(user) => reply::text("ACL WHOAMI", user)?,
        // Not allowed to ask, or a server that does not know the command.
        Err(Error::Configuration { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut pipeline = Pipeline::new();
    for need in needs {
        pipeline
            .cmd("ACL")
            .arg("DRYRUN")
            .arg(&user)
            .arg(&need.words);
    }
    let mut lacking: Vec<String> = Vec::new();
    for (need, answer) in needs.iter().zip(link.pipeline(COMMAND, &pipeline).await?) {
        let answer = match answer {
            Value::ServerError(_) => return Ok(None),
            answer => reply::text(COMMAND, answer)?,
        };
        let rule = match answer.as_str() {
            "OK" => continue,
            // "... no permissions to access the 'key' key": the key that it names.
            text if text.contains("access the") => {
                let name = text.split('\'').nth(1).unwrap_or_default();
                let is_channel = text.trim_end_matches('.').ends_with("channel");
                format!("{}{name}", if is_channel { '&' } else { '~' })
            }
            _ => format!("+{}", need.grant),
        };
        if !lacking.contains(&rule) {
            lacking.push(rule);
        }
    }
    Ok(Some((user, lacking)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::list::Recovery;
    use super::super::script::Script;
    use super::super::stream::{DeadLetterQueue, OnFull};
    use super::*;

    /// Every command that a script sends is asked for.
    #[test]
    fn scripts_need_nothing_else() {
        let mut options = StreamOptions::new("orders", "g");
        options.retention = Retention::Acked;
        options.dead_letter = Some(DeadLetterQueue {
            key: "dead".to_owned(),
            max_len: None,
            on_full: OnFull::Stop,
            routes: Default::default(),
        });
        let lists = ListOptions {
            recovery: Some(Recovery {
                key: "claims".to_owned(),
                ttl: None,
            }),
            dead_letter: options.dead_letter.clone(),
            ..ListOptions::new("jobs")
        };
        let grants = |needs: Vec<Need>| needs.into_iter().map(|n| n.grant).collect();
        let (streams, lists): (BTreeSet<_>, BTreeSet<_>) =
            (grants(stream(&options)), grants(list(&lists)));
        let mut sent = 0;
        // A host replays nothing, publishes nothing and deploys nothing; and it serves as well if
        // it may not show what it runs.
        let serving = |script: &&Script| {
            use Script::{
                Deploy, MoveCopy, MoveDone, MoveHold, PageList, PublishLapsing, PublishLater,
                Replay, ReplayList, Seen, Wish,
            };
            let in_steps = matches!(script, MoveHold | MoveCopy | MoveDone);
            let brings_back = in_steps || matches!(script, Replay | ReplayList | PageList);
            let deploys = matches!(script, Deploy | Wish | Seen);
            !brings_back && !deploys && !matches!(script, PublishLapsing | PublishLater)
        };
        for script in Script::ALL.iter().filter(serving) {
            let asked = if script.name().starts_with("list_") {
                &lists
            } else {
                &streams
            };
            for call in script.source().split("redis.call('").skip(1) {
                let mut parts = call.split('\'');
                let mut grant = parts.next().unwrap().to_lowercase();
                if grant == "xgroup" || grant == "xinfo" {
                    grant = format!("{grant}|{}", parts.nth(1).unwrap().to_lowercase());
                }
                assert!(asked.contains(&grant), "{} sends {grant}", script.name());
                sent += 1;
            }
        }
        assert!(sent > 50, "only {sent} calls found");
    }
}
