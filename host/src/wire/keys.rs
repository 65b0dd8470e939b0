//! The names of the keys that belong to a queue: all in the hash slot of the queue's own key.
//!
//! A cluster hashes what stands between the first `{` and the first `}` behind it, if that is not
//! empty, and else the whole key.

/// The part of a key that a cluster hashes: keys with the same part share a slot.
pub fn hashed(key: &str) -> &str {
    tag(key).unwrap_or(key)
}

/// Whether two keys are sure to share a slot on a cluster.
pub fn share_slot(one: &str, other: &str) -> bool {
    hashed(one) == hashed(other)
}

/// Whether keys derived from this one share its slot. A key with an empty or broken tag (`{}a`,
/// `a}b`) cannot be put into a tag of its own: a cluster must refuse it.
pub fn can_derive(key: &str) -> bool {
    tag(key).is_some() || !(key.is_empty() || key.contains('}'))
}

/// A key derived from a queue's: `orders` gives `{orders}:<suffix>`; a key that already holds a
/// tag keeps it.
pub fn derived(key: &str, suffix: &str) -> String {
    match tag(key) {
        Some(_) => format!("{key}:{suffix}"),
        None => format!("{{{key}}}:{suffix}"),
    }
}

/// The ZSET of a stream's parked deliveries in one group, by when they are due.
pub fn parked(key: &str, group: &str) -> String {
    derived(key, &format!("parked:{group}"))
}

/// The list of what one instance has taken from a reliable list.
pub fn processing(key: &str, instance: &str) -> String {
    derived(key, &format!("processing:{instance}"))
}

/// The hash of the starts that one instance has recorded for what it took from a reliable list.
pub fn started(key: &str, instance: &str) -> String {
    derived(key, &format!("started:{instance}"))
}

/// The ZSET of a reliable list's instances, by when they were last seen.
pub fn instances(key: &str) -> String {
    derived(key, "instances")
}

/// The framed side list of a list with raw values: what must carry headers.
pub fn retry(key: &str) -> String {
    derived(key, "retry")
}

/// Where a queue's messages end that would cycle, unless another key is named.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_the_cluster_specification_says() {
        for (key, part) in [
            ("orders", "orders"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("{}a", "{}a"),
            ("a}b{c}", "c"),
            ("a{b", "a{b"),
        ] {
            assert_eq!(hashed(key), part, "{key}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(parked("orders", "g"), "{orders}:parked:g");
        assert_eq!(parked("shop:{eu}:orders", "g"), "shop:{eu}:orders:parked:g");
        assert_eq!(processing("jobs", "host-1"), "{jobs}:processing:host-1");
        assert_eq!(started("jobs", "host-1"), "{jobs}:started:host-1");
        assert_eq!(instances("jobs"), "{jobs}:instances");
        assert_eq!(retry("jobs"), "{jobs}:retry");
        assert_eq!(cycle("orders"), "{orders}:cycle");
    }

    #[test]
    fn empty_and_broken_tags_are_found() {
        for bad in ["", "{}", "{}a", "a}b", "}", "a{}b", "}{"] {
            assert!(!can_derive(bad), "{bad}");
        }
        for good in ["a", "a{b", "{a}", "x{a}y", "a}b{c}", "{{a}", "a:b"] {
            assert!(can_derive(good), "{good}");
        }
    }

    proptest! {
        #[test]
        fn derived_keys_share_the_slot_exactly_where_promised(
            key in "[a{}:]{0,8}",
            suffix in "[a{}:]{0,8}",
        ) {
            prop_assert_eq!(share_slot(&key, &derived(&key, &suffix)), can_derive(&key));
        }
    }
}
