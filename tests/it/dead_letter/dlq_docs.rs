//! `docs/dead-letters.md`: each reason has a section. `docs/internals/dead-letters.md`: each row of the comparison
//! names existing tests for streams and for lists.

use std::path::Path;

use hostler::delivery::policy::Reason;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tests of a file: their names, and whether one is run on both kinds of queues.
fn tests_of(file: &str) -> Vec<(String, bool)> {
    let mut folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("it")).unwrap();
    let name = format!("{file}.rs");
    let path = folders.find_map(|folder| {
        let path = folder.unwrap().path().join(&name);
        path.exists().then_some(path)
    });
    let path = path.unwrap_or_else(|| panic!("no folder has {name}"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut tests = Vec::new();
    if let Some((_, names)) = text.split_once("\non_both! {\n") {
        let (names, _) = names.split_once("\n}").unwrap();
        for name in names.split_whitespace() {
            let function = format!("\nasync fn {name}(kind: Kind) {{\n");
            assert!(text.contains(&function), "{file}: {name}");
            tests.push((name.to_owned(), true));
        }
    }
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            let function = lines.next().unwrap_or_default();
            let function = function.strip_prefix("async ").unwrap_or(function);
            if let Some(name) = function.strip_prefix("fn ") {
                tests.push((name.split('(').next().unwrap().to_owned(), false));
            }
        }
    }
    tests
}

/// The parts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_row_of_the_table_names_its_tests_for_both_kinds() {
    let docs = read("../docs/internals/dead-letters.md");
    let (_, table) = docs.split_once("| test |\n").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        let cell = row
            .trim_end_matches([' ', '|'])
            .rsplit(" | ")
            .next()
            .unwrap();
        let named = quoted(cell);
        assert!(!named.is_empty(), "no test: {row}");
        let (mut streams, mut lists) = (false, cell.contains("a list has no groups"));
        for name in named {
            let (file, test) = name
                .split_once("::")
                .unwrap_or_else(|| panic!("`{name}` names no test of a file: {row}"));
            let tests = tests_of(file);
            let Some((_, is_both)) = tests.iter().find(|(there, _)| there == test) else {
                panic!("there is no test `{name}`: {row}");
            };
            let is_of_lists = file.contains("list");
            streams |= *is_both || !is_of_lists;
            lists |= *is_both || is_of_lists;
        }
        assert!(streams && lists, "only one kind of queue: {row}");
    }
}

#[test]
fn each_reason_has_a_section_with_its_cause_and_its_remedy() {
    let docs = read("../docs/dead-letters.md");
    for reason in Reason::ALL {
        let head = format!("### `{}`\n", reason.label());
        let (_, section) = docs.split_once(&head).unwrap_or_else(|| panic!("{head}"));
        let section = section.split("\n#").next().unwrap();
        for part in ["**When:**", "**Handler ran:**", "**Do:**", "**Do not"] {
            assert!(section.contains(part), "{part} of {head}");
        }
    }
}
