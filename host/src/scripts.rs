//! Tests of all scripts, wherever they are declared.

use std::collections::BTreeSet;
use std::path::Path;

use crate::redis::script::Script;

fn all() -> Vec<&'static Script> {
    let rooms = [
        crate::dead_letter::scripts::ALL,
        crate::outgoing::scripts::ALL,
        crate::publish::scripts::ALL,
        crate::queue::list::scripts::ALL,
        crate::queue::scripts::ALL,
        crate::queue::stream::scripts::ALL,
        crate::redis::scripts::ALL,
        crate::registry::scripts::ALL,
        crate::rollout::scripts::ALL,
        crate::schedule::scripts::ALL,
        crate::key_values::scripts::ALL,
    ];
    rooms.concat()
}

#[test]
fn every_script_states_its_contract() {
    for script in all() {
        let source = script.source();
        for part in [
            "-- KEYS ",
            "-- ARGV ",
            "-- reply ",
            "-- Atomicity: ",
            "A repeat",
        ] {
            let count = source.matches(part).count();
            assert_eq!(count, 1, "{}: {part}", script.name());
        }
    }
}

/// A file that no room declares would be dead text, and no test would see it.
#[test]
fn every_file_is_declared() {
    let names: BTreeSet<String> = all().iter().map(|s| format!("{}.lua", s.name())).collect();
    let (mut files, mut open) = (
        BTreeSet::new(),
        vec![Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()],
    );
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_part = path.ends_with("lua/parts");
            if path.is_dir() && !is_part {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "lua") {
                files.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert_eq!(files, names);
}
