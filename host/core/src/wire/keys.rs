//! The names of the keys that belong to a queue. All are in the hash slot of the queue's own key. Also
//! the names of consumers that are no hosts: names of hosts end in a random part.
//!
//! A cluster hashes the text between the first `{` and the first `}` after it. If that text is
//! empty or missing, it hashes the whole key.

/// The hash slot of a key in a cluster (CRC-16/XMODEM of the hashed text).
pub fn slot(key: &str) -> u16 {
    slot_of_bytes(key.as_bytes())
}

/// The same of a key that may be any bytes.
pub fn slot_of_bytes(key: &[u8]) -> u16 {
    let find = |from: usize, what: u8| {
        let found = key.get(from..)?.iter().position(|&byte| byte == what);
        found.map(|at| from + at)
    };
    let open = find(0, b'{').map(|at| at + 1);
    let tag = open.and_then(|open| Some(&key[open..find(open, b'}')?]));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    });
    crc % 16384
}

/// Whether keys derived from this one share its slot. A key with an empty or broken tag (`{}a`,
/// `a}b`) cannot become a tag: a cluster must refuse it.
pub fn can_share_slot(key: &str) -> bool {
    tag(key).is_some() || !(key.is_empty() || key.contains('}'))
}

/// Derive a key from a queue's key: `orders` gives `{orders}:<suffix>`. A key that already has a
/// tag keeps it. A key that is nothing but a tag gets an empty pair of braces, which means nothing to a
/// cluster: `{orders}` gives `{orders}{}:<suffix>`, and shares no key with `orders`.
pub fn derived(key: &str, suffix: &str) -> String {
    match tag(key) {
        Some(_) if is_bare_tag(key) => format!("{key}{{}}:{suffix}"),
        Some(_) => format!("{key}:{suffix}"),
        None => format!("{{{key}}}:{suffix}"),
    }
}

/// The queue whose keys begin so: the inverse of [`derived`], without the colon and the suffix.
pub fn origin(start: &str) -> &str {
    let inner = start
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    match inner {
        Some(inner) if !inner.contains(['{', '}']) => inner,
        _ if is_bare_tag(start) => start.strip_suffix("{}").unwrap_or(start),
        _ => start,
    }
}

/// Whether a key that has a tag is nothing but that tag, and perhaps empty pairs of braces.
fn is_bare_tag(key: &str) -> bool {
    let bare = key.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    bare.is_some_and(|(_, rest)| rest.replace("{}", "").is_empty())
}

/// Keys that hostler keeps for a queue, each as a function of the queue's own key and of what follows the name.
macro_rules! own_keys {
    ($($(#[$doc:meta])+ $name:ident($($more:ident),*) = $word:literal;)+) => {
        $($(#[$doc])+
        pub fn $name(key: &str $(, $more: &str)*) -> String {
            derived(key, &[$word $(, $more)*].join(":"))
        })+

        /// Their names, and what follows each.
        const OWN: &[(&str, &[&str])] = &[$(($word, &[$(stringify!($more)),*])),+];
    };
}

own_keys! {
    /// The ZSET of a stream's parked deliveries in one group, with their due times.
    parked(group) = "parked";
    /// The ZSET of the deliveries of one group that were held, with the time of the first hold and the number of holds.
    held(group) = "held";
    /// The ZSET of the fences of a group's hosts, by consumer. A fence is the number of a call that
    /// voids all requests that its host sent before.
    fences(group) = "fences";
    /// What the last request of a host has acknowledged with effects, in one group.
    acted(group, consumer) = "acted";
    /// The ZSET of deliveries whose effects are written in part, with how many are. `group` is empty for a list.
    written(group) = "written";
    /// The ZSET of the deliveries of one group that were acknowledged when they were another host's, with the times.
    late(group) = "late";
    /// The ZSET of the deliveries of one group that an operator has cancelled, with the times. `group` is empty for a list.
    cancelled(group) = "cancelled";
    /// The ZSET of the journals of one group, by message, with the times when they were last written. `group` is empty for a list.
    journals(group) = "journals";
    /// The hash of the records of one message. `group` is empty for a list.
    journal(group, id) = "journal";
    /// The stream of the answers in one inbox; also that of a message without one that its handler has answered: its group
    /// and id.
    replies(inbox) = "replies";
    /// The list of the values that one instance has taken from a reliable list.
    processing(instance) = "processing";
    /// The hash of the starts that one instance has recorded for its values of a reliable list.
    started(instance) = "started";
    /// The stream of messages on their way to a destination in another slot: `stream:invoices`.
    outbox(destination) = "outbox";
    /// The set of the destinations for which a queue has had an outbox.
    outboxes() = "outboxes";
    /// The hash of the last entry that a destination took from each outbox.
    from() = "from";
    /// The ZSET of a reliable list's instances, with the times when they were last seen.
    instances() = "instances";
    /// The framed side list of a list with raw values. It holds the values that must carry headers.
    retry() = "retry";
    /// The ZSET of a queue's delayed messages, with their due times: messages published with a delay,
    /// and a reliable list's delayed deliveries.
    delayed() = "delayed";
    /// The hash of a queue's schedules: definitions, bodies, records.
    schedules() = "schedules";
    /// The ZSET of the next ticks of a queue's schedules.
    ticks() = "ticks";
    /// The hash of the versions of a queue's handler.
    versions() = "versions";
    /// The component of one version.
    version(number) = "version";
    /// A component during its upload.
    upload(token) = "upload";
    /// The ZSET of a queue's hosts, with the times when they were last seen.
    hosts() = "hosts";
    /// The description of one host of a queue.
    host(name) = "host";
    /// The hash of the policies of one queue.
    policy() = "policy";
    /// The record of a dead letter that is moved in steps, in the slot of its dead-letter queue.
    moving(id) = "moving";
    /// The record that the copy of such a move is written, in the slot of the target queue.
    moved(token) = "moved";
}

/// The names of those that have functions of their own. Text may follow.
const OWN_WITH_MORE: [&str; 3] = ["min-idle", "done", "kv"];

/// Whether a key has the name of one that hostler keeps for some queue: `{orders}:delayed`. Neither a
/// queue nor a key that an operator names may be such a key: two queues would share it, or keys derived
/// from it. The cycle key is no such key: it is a queue of its own.
pub fn is_own(key: &str) -> bool {
    let behind = tag(key).and_then(|_| key.split_once('{')?.1.split_once('}'));
    let Some((_, mut rest)) = behind else {
        return false;
    };
    // The queue's own key may end at every colon behind the tag.
    while let Some((_, name)) = rest.split_once(':') {
        let first = name.split_once(':').map_or(name, |(first, _)| first);
        let is_own = |(own, more): &(&str, &[&str])| match more.is_empty() {
            true => *own == name,
            false => *own == first,
        };
        if OWN.iter().any(is_own) || OWN_WITH_MORE.contains(&first) {
            return true;
        }
        rest = name;
    }
    false
}

/// The consumer that owns parked deliveries. No host has this name: theirs end in a random part.
pub const PARKED_CONSUMER: &str = "hostler:parked";

/// So begins the name of the consumer that marks a group. It goes with the group: a group that is made
/// again has another one, and a host sees that it must bring back what it holds.
pub const EPOCH_CONSUMER: &str = "hostler:epoch:";

/// The consumer of a group in which parked deliveries of an earlier group are not pending yet.
pub const UNPARKED_CONSUMER: &str = "hostler:unparked";

/// The ZSET of the `min_idle`s that the live hosts of a queue use (of a stream: of one group), with the
/// times until when.
pub fn min_idle(key: &str, group: Option<&str>) -> String {
    match group {
        Some(group) => derived(key, &format!("min-idle:{group}")),
        None => derived(key, "min-idle"),
    }
}

/// The set of the marks of messages that were handled in one stretch of time.
pub fn done(key: &str, group: Option<&str>, stretch: u64) -> String {
    derived(
        key,
        &format!("done:{}:{stretch}", group.unwrap_or_default()),
    )
}

/// The hash of the policies for all queues that match a pattern.
pub const POLICIES: &str = "hostler:policies";

/// What a limit of starts has allowed, of all messages or of those with a key. Queues share it, and a message takes from all
/// of its limits at once: so all are in one slot, which is that of no queue.
pub fn limit(name: &str, key: Option<&str>) -> String {
    match key {
        None => format!("{{hostler:limits}}:{name}"),
        Some(key) => format!("{{hostler:limits}}:{name}:{key}"),
    }
}

/// How many permits each host has of a limit of attempts at once. No limit has an empty name, so this is no key of one.
pub fn permits(name: &str) -> String {
    format!("{{hostler:limits}}::{name}")
}

/// The sorted set of the queues that hosts serve.
pub const QUEUES: &str = "hostler:queues";

/// The default key for messages of a queue that would cycle.
pub fn cycle(key: &str) -> String {
    derived(key, "cycle")
}

fn tag(key: &str) -> Option<&str> {
    let (_, behind) = key.split_once('{')?;
    let (tag, _) = behind.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // As `CLUSTER KEYSLOT` answers.
        for (key, expected) in [("123456789", 12739), ("foo", 12182), ("bar", 5061), ("", 0)] {
            assert_eq!(slot(key), expected, "{key}");
        }
        for (key, hashed) in [
            ("{user1000}.following", "user1000"),
            ("foo{{bar}}zap", "x{{bar}"),
            ("foo{bar}{zap}", "bar"),
            ("a}b{c}", "c"),
        ] {
            assert_eq!(slot(key), slot(hashed), "{key}");
        }
        for whole in ["foo{}{bar}", "{}a", "a{b"] {
            assert_eq!(tag(whole), None, "{whole}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(parked("orders", "g"), "{orders}:parked:g");
        assert_eq!(parked("shop:{eu}:orders", "g"), "shop:{eu}:orders:parked:g");
        assert_eq!(fences("orders", "g"), "{orders}:fences:g");
        assert_eq!(acted("orders", "g", "web-1"), "{orders}:acted:g:web-1");
        assert_eq!(processing("jobs", "host-1"), "{jobs}:processing:host-1");
        assert_eq!(started("jobs", "host-1"), "{jobs}:started:host-1");
        assert_eq!(instances("jobs"), "{jobs}:instances");
        assert_eq!(replies("orders", "web-1"), "{orders}:replies:web-1");
        assert_eq!(retry("jobs"), "{jobs}:retry");
        assert_eq!(delayed("jobs"), "{jobs}:delayed");
        assert_eq!(policy("orders"), "{orders}:policy");
        assert_eq!(cycle("orders"), "{orders}:cycle");
        assert_eq!(moving("orders:dead", "1-1"), "{orders:dead}:moving:1-1");
        assert_eq!(moved("orders", "a1"), "{orders}:moved:a1");
        assert_eq!(versions("orders"), "{orders}:versions");
        assert_eq!(version("orders", "7"), "{orders}:version:7");
        assert_eq!(upload("orders", "a1"), "{orders}:upload:a1");
        assert_eq!(hosts("orders"), "{orders}:hosts");
        assert_eq!(host("orders", "web-1"), "{orders}:host:web-1");
        assert_eq!(min_idle("orders", Some("g")), "{orders}:min-idle:g");
        assert_eq!(min_idle("jobs", None), "{jobs}:min-idle");
        assert_eq!(delayed("{orders}"), "{orders}{}:delayed");
        assert_eq!(delayed("{orders}{}"), "{orders}{}{}:delayed");
        assert_eq!(delayed("{orders}x"), "{orders}x:delayed");
        assert_eq!(slot(&delayed("{orders}")), slot("orders"));
    }

    #[test]
    fn the_queue_of_a_key_is_known() {
        for queue in [
            "orders",
            "{orders}",
            "{orders}{}",
            "shop:{eu}:orders",
            "a:b",
        ] {
            let start = derived(queue, "");
            let start = start.strip_suffix(':').unwrap();
            assert_eq!(origin(start), queue, "{start}");
        }
    }

    #[test]
    fn the_keys_of_a_queue_are_known_as_such() {
        for queue in ["orders", "{orders}", "shop:{eu}:orders", "a{b"] {
            for own in [
                parked(queue, "g"),
                parked(queue, "a:b"),
                fences(queue, "g"),
                acted(queue, "g", "web-1"),
                min_idle(queue, Some("g")),
                min_idle(queue, None),
                processing(queue, "host-1"),
                started(queue, "host-1"),
                instances(queue),
                retry(queue),
                delayed(queue),
                versions(queue),
                version(queue, "7"),
                upload(queue, "a1"),
                hosts(queue),
                host(queue, "web-1"),
                policy(queue),
                moving(queue, "1-1"),
                moved(queue, "a1"),
                done(queue, Some("g"), 1),
                done(queue, None, 1),
                outbox(queue, "stream:{a}:b"),
                outboxes(queue),
                from(queue),
            ] {
                assert!(is_own(&own), "{own}");
            }
            assert!(!is_own(queue) && !is_own(&cycle(queue)), "{queue}");
        }
        for other in [
            "orders:delayed",
            "retry",
            "{orders}:dead",
            "{orders}:claims",
            "{orders}:hosts:daily",
            "{orders}delayed",
            "{}:delayed",
            "a:delayed:{b}",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn the_page_of_keys_names_each_one() {
        let queue = "orders";
        let keys = [
            ("parked", parked(queue, "<group>")),
            ("fences", fences(queue, "<group>")),
            ("acted", acted(queue, "<group>", "<consumer>")),
            ("written", written(queue, "<group>")),
            ("late", late(queue, "<group>")),
            ("cancelled", cancelled(queue, "<group>")),
            ("min_idle", min_idle(queue, Some("<group>"))),
            ("min_idle", min_idle(queue, None)),
            ("processing", processing(queue, "<instance>")),
            ("started", started(queue, "<instance>")),
            (
                "done",
                done(queue, Some("<group>"), 0).replace(":0", ":<n>"),
            ),
            ("done", done(queue, None, 0).replace(":0", ":<n>")),
            ("outbox", outbox(queue, "<destination>")),
            ("outboxes", outboxes(queue)),
            ("from", from(queue)),
            ("instances", instances(queue)),
            ("retry", retry(queue)),
            ("delayed", delayed(queue)),
            ("schedules", schedules(queue)),
            ("ticks", ticks(queue)),
            ("versions", versions(queue)),
            ("version", version(queue, "<number>")),
            ("upload", upload(queue, "<token>")),
            ("hosts", hosts(queue)),
            ("host", host(queue, "<name>")),
            ("policy", policy(queue)),
            ("moving", moving("orders:dead", "<id>")),
            ("moved", moved(queue, "<token>")),
            ("cycle", cycle(queue)),
            ("held", held(queue, "<group>")),
            ("replies", replies(queue, "<inbox>")),
            ("journals", journals(queue, "<group>")),
            ("journal", journal(queue, "<group>", "<id>")),
        ];
        // No function of this file is missing here.
        let (code, _) = include_str!("keys.rs").split_once("#[cfg(test)]").unwrap();
        let functions: BTreeSet<&str> = code
            .split("\npub fn ")
            .skip(1)
            .filter_map(|function| {
                let (name, body) = function.split_once("\n}\n")?.0.split_once('(')?;
                (name != "derived" && body.contains("derived(")).then_some(name)
            })
            .chain(OWN.iter().map(|(name, _)| *name))
            .collect();
        let listed: BTreeSet<&str> = keys.iter().map(|(function, _)| *function).collect();
        assert_eq!(functions, listed);

        // The first cell of each row of a table.
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
        let page = std::fs::read_to_string(page).unwrap();
        let cells: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
            .collect();
        let cells = cells.join("\n");
        for (_, key) in &keys {
            assert!(cells.contains(&format!("`{key}`")), "{key}");
        }
        for name in own(false) {
            assert!(cells.contains(&format!("}}:{name}`")), "{name}");
        }
        for name in own(true) {
            assert!(cells.contains(&format!("}}:{name}:")), "{name}");
        }
        // The names that have no queue, and those of consumers.
        let names = code.lines().filter_map(|line| {
            let constant = line.strip_prefix("pub const ")?;
            constant.split('"').nth(1)
        });
        for name in names.chain(["hostler:parked"]) {
            assert!(cells.contains(&format!("`{name}")), "{name}");
        }
    }

    /// The names of all own keys that text follows, or of the others.
    fn own(with_more: bool) -> Vec<&'static str> {
        let own = OWN.iter().filter(|(_, more)| more.is_empty() != with_more);
        let others = OWN_WITH_MORE.iter().filter(|_| with_more);
        own.map(|(name, _)| name).chain(others).copied().collect()
    }

    #[test]
    fn empty_and_broken_tags_are_refused() {
        for bad in ["", "{}", "{}a", "a}b", "}", "a{}b", "}{"] {
            assert!(!can_share_slot(bad), "{bad}");
        }
        for good in ["a", "a{b", "{a}", "x{a}y", "a}b{c}", "{{a}", "a:b"] {
            assert!(can_share_slot(good), "{good}");
        }
    }

    proptest! {
        #[test]
        fn two_queues_share_no_key(
            one in "[a{}:]{1,8}",
            other in "[a{}:]{1,8}",
            plain in proptest::sample::select(own(false)),
            more in proptest::sample::select(own(true)),
            group in "[a{}:]{0,4}(:delayed|:parked:a|:host:a)?",
        ) {
            prop_assume!(one != other && can_share_slot(&one) && can_share_slot(&other));
            prop_assume!(!is_own(&one) && !is_own(&other));
            let longer = format!("{more}:{group}");
            for suffix in [plain, &longer] {
                for theirs in [plain, &longer] {
                    prop_assert_ne!(derived(&one, suffix), derived(&other, theirs));
                }
                prop_assert_ne!(&derived(&one, suffix), &other);
            }
        }

        #[test]
        fn derived_keys_share_the_slot_exactly_where_promised(
            key in "[a{}:]{0,8}",
            suffix in "[a{}:]{0,8}",
        ) {
            let derived = derived(&key, &suffix);
            let same = tag(&key).unwrap_or(&key) == tag(&derived).unwrap_or(&derived);
            prop_assert_eq!(same, can_share_slot(&key));
            prop_assert!(!same || slot(&key) == slot(&derived));
        }
    }
}
