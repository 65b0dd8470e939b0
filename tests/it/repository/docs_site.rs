//! The documentation as a site: every page is in a contents, every link has a target, every alert a runbook,
//! and the versions of the packages are those of hostler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::cli_new::repository;

/// The pages of the site, relative to `docs`.
fn pages() -> Vec<PathBuf> {
    let docs = repository().join("docs");
    let mut open = vec![docs.clone()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false if path.extension().is_some_and(|e| e == "md") => {
                    found.push(path.strip_prefix(&docs).unwrap().to_owned());
                }
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn text(page: &Path) -> String {
    std::fs::read_to_string(repository().join("docs").join(page)).unwrap()
}

/// The lines of a page outside of its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for part in line.split("](").skip(1) {
            found.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The names of the headings of a page, as links spell them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let spell = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(spell).collect()
}

/// The contents for users, and those for contributors.
const CONTENTS: [&str; 2] = ["SUMMARY.md", "SUMMARY.contributors.md"];

#[test]
fn every_page_is_in_one_contents_once() {
    let [users, contributors] = CONTENTS.map(|contents| links(&text(Path::new(contents))));
    // It leads from one to the other.
    let both = "contributors.md";
    assert!(users.iter().any(|page| page == both));
    let contributors = contributors.into_iter().filter(|page| page != both);
    let listed: Vec<_> = users.into_iter().chain(contributors).collect();
    let unique: BTreeSet<_> = listed.iter().map(PathBuf::from).collect();
    assert_eq!(unique.len(), listed.len(), "a page is there twice");
    let is_page = |page: &PathBuf| !CONTENTS.iter().any(|contents| page == Path::new(contents));
    assert_eq!(
        pages().into_iter().filter(is_page).collect::<BTreeSet<_>>(),
        unique
    );
}

#[test]
fn the_pages_for_users_have_at_most_45_000_words() {
    let pages = links(&text(Path::new(CONTENTS[0])));
    let words = |page: &String| text(Path::new(page)).split_whitespace().count();
    let all: usize = pages.iter().map(words).sum();
    assert!(
        all <= 45_000,
        "{all} words: move what few need to a page for contributors"
    );
}

#[test]
fn llms_txt_names_every_page_for_users_and_says_what_it_has() {
    let script = Command::new("sh")
        .arg("packaging/llms.sh")
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(script.status.success(), "{script:?}");
    let made = String::from_utf8(script.stdout).unwrap();
    assert!(
        made.starts_with("# hostler\n\n> hostler runs message handlers"),
        "{made}"
    );
    let described = made
        .lines()
        .filter_map(|line| line.strip_prefix("- [")?.split_once("): "));
    let described: BTreeSet<String> = described
        .filter(|(_, about)| about.len() > 20 && about.ends_with('.'))
        .map(|(link, _)| link.split_once("](").unwrap().1.to_owned())
        .collect();
    let pages = links(&text(Path::new(CONTENTS[0])))
        .into_iter()
        .filter(|page| page != "index.md");
    assert_eq!(described, pages.collect());
}

#[test]
fn every_link_between_pages_has_a_target() {
    let mut checked = 0;
    for page in pages() {
        for link in links(&text(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file.is_empty() {
                true => page.clone(),
                false => page.parent().unwrap().join(file),
            };
            let path = repository().join("docs").join(&target);
            let docs = repository().join("docs").canonicalize().unwrap();
            let found = path.canonicalize();
            let inside = found.as_ref().is_ok_and(|found| found.starts_with(&docs));
            assert!(inside, "{}: {link} is no file of the site", page.display());
            if !anchor.is_empty() {
                let anchors = anchors(&std::fs::read_to_string(&path).unwrap());
                assert!(
                    anchors.contains(anchor),
                    "{}: {link}: {anchors:?}",
                    page.display()
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked}");
}

/// The paths of this repository that stand in a text as code: those that begin with one of its folders.
fn paths(text: &str) -> Vec<String> {
    let folders = [
        "host",
        "tests",
        "docs",
        "guest-examples",
        "packaging",
        "vendor",
    ];
    let codes = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = codes.flat_map(|code| code.split([' ', ':']));
    let is_path = |word: &&str| {
        let begins = |folder: &&str| {
            word.strip_prefix(*folder)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        folders.iter().any(begins) && !word.contains(['<', '*', '{', '$'])
    };
    words.filter(is_path).map(str::to_owned).collect()
}

#[test]
fn every_path_of_this_repository_that_a_page_names_exists() {
    let mut pages: Vec<PathBuf> = pages()
        .into_iter()
        .map(|page| Path::new("docs").join(page))
        .collect();
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "vendor/README.md",
    ];
    pages.extend(others.map(PathBuf::from));
    let mut checked = 0;
    for page in pages {
        let text = std::fs::read_to_string(repository().join(&page)).unwrap();
        for path in paths(&text) {
            let exists = repository().join(&path).exists();
            assert!(exists, "{}: `{path}` does not exist", page.display());
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn every_alert_has_a_runbook_and_only_metrics_that_exist() {
    let rules = repository().join("docs/monitoring/hostler.rules.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<&str> = alerts.collect();
    let runbooks = text(Path::new("operations/alerts.md"));
    let runbooks = runbooks.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(alerts, runbooks.collect());
    let known = text(Path::new("metrics.md"));
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("hostler_")).collect();
    assert!(metrics.len() > 15, "{metrics:?}");
    for metric in metrics {
        let series = metric.trim_end_matches("_bucket");
        assert!(known.contains(&format!("| `{series}` |")), "{metric}");
    }
}

#[test]
fn the_packages_have_the_version_of_hostler() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        (
            "packaging/helm/hostler/Chart.yaml",
            format!("version: {version}"),
        ),
        (
            "packaging/helm/hostler/Chart.yaml",
            format!("appVersion: \"{version}\""),
        ),
        (
            "guest-examples/sdk/rust/hostler-handler/Cargo.toml",
            format!("version = \"{version}\""),
        ),
        (
            "guest-examples/sdk/rust/hostler-handler/Cargo.toml",
            format!("hostler-handler-macros = {{ version = \"{version}\", path = \"macros\" }}"),
        ),
        (
            "guest-examples/sdk/rust/hostler-handler/macros/Cargo.toml",
            format!("version = \"{version}\""),
        ),
        (
            "guest-examples/sdk/python/pyproject.toml",
            format!("version = \"{version}\""),
        ),
        (
            "guest-examples/sdk/js/package.json",
            format!("  \"version\": \"{version}\","),
        ),
        (
            "packaging/image/Containerfile",
            format!("ARG HOSTLER_VERSION={version}"),
        ),
        (
            "packaging/kubernetes/hostler.yaml",
            format!("          image: \"hostler:{version}\""),
        ),
    ] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        assert!(text.lines().any(|found| found == line), "{file}: {line}");
    }
}
