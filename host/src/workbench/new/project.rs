//! Puts a project together: the template of its language with the SDK, or the example, and with `--with` the files of
//! the parts. With `--minimal`, a handler that only acks stands in the place of the orders.
//!
//! A line `@with http publish`, in a comment of any language, begins lines for these parts: they stay if one of
//! the parts is asked for; `@with order` stays unless the project is minimal. `@end` ends them; blocks may hold blocks. A file of which nothing stays is left out. So the files, as they
//! are kept, are those of a project with all parts.

use std::collections::BTreeMap;

use super::templates::{COMMON, Choice, File, JS_SDK, Language, Part};

/// The name of the examples; a new project has its own name instead.
const EXAMPLE: &str = "orders-handler";
/// The example of a secret.
const TOKEN: &str = "shop-token";

/// Where an example has the WIT package. Beside a world of the project it is among the dependencies.
const PACKAGE: &str = "wit/world.wit";

/// The part that every project has, unless it is minimal.
const ORDER: &str = "order";

/// The paths and contents of a project.
pub(super) type Files = BTreeMap<&'static str, Vec<u8>>;

/// The project, with this name.
pub(super) fn project(files: &[File], name: &str) -> Files {
    let files = files.iter();
    files.map(|f| (f.path, named(f.bytes, name))).collect()
}

/// The project with the SDK.
pub(super) fn with_sdk(
    language: Language,
    template: &[File],
    name: &str,
    with: &[Part],
    is_minimal: bool,
) -> Files {
    let mut kept = words(with);
    if !is_minimal {
        kept.push(ORDER);
    }
    let mut files = Files::new();
    for file in template {
        if file.path.starts_with("hostler") && file.path.contains('/') {
            // The SDK.
            files.insert(file.path, file.bytes.to_vec());
        } else if file.path != TOKEN || with.contains(&Part::Secrets) {
            let bytes = match is_minimal {
                true => generic(file.bytes),
                false => file.bytes.to_vec(),
            };
            add(&mut files, file.path, None, &named(&bytes, name), &kept);
        }
    }
    if matches!(language, Language::Js | Language::Ts) {
        files.extend(JS_SDK.iter().map(|file| (file.path, file.bytes.to_vec())));
    }
    if is_minimal {
        let own = language.minimal().iter();
        files.extend(own.map(|file| (file.path, named(file.bytes, name))));
    }
    files
}

fn words(with: &[Part]) -> Vec<&'static str> {
    with.iter().map(|part| part.word()).collect()
}

/// The smallest project of this name.
pub(super) fn minimal(language: Language, name: &str) -> Files {
    let kept = language.example().iter();
    let kept = kept.filter(|file| !is_of_orders(file.path));
    let files = kept.map(|file| (file.path, named(&generic(file.bytes), name)));
    let own = language.minimal().iter();
    let own = own.map(|file| (file.path, named(file.bytes, name)));
    files.chain(own).collect()
}

/// Whether a file of an example is about orders, and not about hostler or the build.
fn is_of_orders(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let begins = |start: &&str| name.starts_with(start);
    !path.starts_with("wit/") && ["order", "test_order", "json."].iter().any(begins)
}

/// A file of an example without the orders: their queue, their tests, what it says about them.
fn generic(bytes: &[u8]) -> Vec<u8> {
    match str::from_utf8(bytes) {
        Ok(text) => text
            .replace("\"orders\"", &format!("\"{EXAMPLE}\""))
            .replace("\"orders:dead\"", &format!("\"{EXAMPLE}:dead\""))
            .replace("order.zig", "handler.zig")
            .replace(": the orders example", "")
            .into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

/// The project of the example of this language, with this name and these parts.
pub(super) fn files(language: Language, name: &str, with: &[Part]) -> Files {
    let mut files = project(language.example(), name);
    if with.is_empty() {
        return files;
    }
    let with = &words(with);
    files.remove(PACKAGE);
    for file in language.with() {
        add(&mut files, file.path, None, &named(file.bytes, name), with);
    }
    for file in COMMON {
        // What the example or its replacement says about the tools and the queue stays.
        let begin = match file.path {
            "README.md" | "hostler.toml" => files.remove(file.path),
            _ => None,
        };
        let is_own = language.with().iter().any(|own| own.path == file.path);
        if begin.is_some() || !is_own {
            add(&mut files, file.path, begin, &named(file.bytes, name), with);
        }
    }
    files
}

/// Add the lines of these parts behind the beginning of a file.
fn add(files: &mut Files, path: &'static str, begin: Option<Vec<u8>>, bytes: &[u8], with: &[&str]) {
    let mut content = begin.unwrap_or_default();
    match str::from_utf8(bytes) {
        Ok(text) => content.extend(chosen(text, with).into_bytes()),
        Err(_) => content.extend(bytes),
    }
    match content.is_empty() {
        true => files.remove(path),
        false => files.insert(path, content),
    };
}

/// A file in a project of this name.
fn named(bytes: &[u8], name: &str) -> Vec<u8> {
    match str::from_utf8(bytes) {
        Ok(text) if bytes.contains(&b'\n') => text
            .replace(EXAMPLE, name)
            .replace(&EXAMPLE.replace('-', "_"), &name.replace('-', "_"))
            .into_bytes(),
        _ => bytes.to_vec(),
    }
}

/// The lines of a text without those of other parts.
fn chosen(text: &str, with: &[&str]) -> String {
    let mut kept = String::new();
    // For each block around the line, whether one of its parts is asked for.
    let mut asked = Vec::new();
    for line in text.split_inclusive('\n') {
        match mark(line) {
            Some(Mark::With(parts)) => {
                asked.push(parts.split_whitespace().any(|part| with.contains(&part)));
            }
            Some(Mark::End) => drop(asked.pop()),
            None if asked.iter().all(|is_asked| *is_asked) => kept.push_str(line),
            None => {}
        }
    }
    kept
}

/// A line that stays in no project.
#[derive(Debug, PartialEq)]
enum Mark<'a> {
    With(&'a str),
    End,
}

fn mark(line: &str) -> Option<Mark<'_>> {
    let text = line.trim_start_matches([' ', '\t', '/', '#', '<', '!', '-']);
    let text = text.trim_end_matches([' ', '\r', '\n', '-', '>']);
    match text {
        "@end" => Some(Mark::End),
        _ => text.strip_prefix("@with ").map(Mark::With),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every choice of parts.
    fn choices() -> Vec<Vec<Part>> {
        let all = Part::ALL;
        let chosen = |bits: usize| {
            let parts = all.iter().enumerate();
            let parts = parts.filter(|(at, _)| bits & (1 << at) != 0);
            parts.map(|(_, part)| *part).collect()
        };
        (0..1 << all.len()).map(chosen).collect()
    }

    #[test]
    fn lines_of_other_parts_are_left_out() {
        let text =
            "a\n  // @with http publish\nb\n# @end\n<!-- @with secrets -->\nc\n<!-- @end -->\nd\n";
        assert_eq!(chosen(text, &["http"]), "a\nb\nd\n");
        assert_eq!(chosen(text, &["publish", "secrets"]), "a\nb\nc\nd\n");
        assert_eq!(chosen(text, &[]), "a\nd\n");
        assert_eq!(mark("let end = 1; // the @end"), None);
    }

    #[test]
    fn the_marks_of_every_file_name_parts_and_are_closed() {
        let languages = Language::ALL.iter();
        let own = languages.flat_map(|language| language.with());
        let templates = Language::ALL
            .iter()
            .filter_map(|language| language.template());
        for file in own.chain(COMMON).chain(templates.flatten()) {
            let mut open = 0;
            for line in String::from_utf8_lossy(file.bytes).lines() {
                match mark(line) {
                    Some(Mark::With(parts)) => {
                        let mut parts = parts.split_whitespace();
                        let known =
                            parts.all(|part| part == ORDER || Part::of_word(part).is_some());
                        assert!(known, "{}: {line}", file.path);
                        open += 1;
                    }
                    Some(Mark::End) => open -= 1,
                    None => {}
                }
                assert!(open >= 0, "{}: {line}", file.path);
            }
            assert_eq!(open, 0, "{}", file.path);
        }
    }

    #[test]
    fn nothing_of_the_orders_stays_in_a_minimal_project() {
        for language in Language::ALL {
            let files = match language.template() {
                Some(template) => with_sdk(*language, template, "parcel-desk", &[], true),
                None => minimal(*language, "parcel-desk"),
            };
            for (path, bytes) in files {
                let text = String::from_utf8_lossy(&bytes).to_lowercase();
                // The world of JavaScript has this name. Bindings speak of the order of fields.
                let text = text.replace("--world orders", "");
                assert!(
                    !text.contains("order")
                        || ["wit/", "bindings/", "hostler"]
                            .iter()
                            .any(|d| path.starts_with(d)),
                    "{language:?}: {path}"
                );
            }
        }
    }

    #[test]
    fn a_project_has_its_own_name_and_only_its_parts() {
        for language in Language::ALL {
            let raw = |with: &[Part]| files(*language, "parcel-desk", with);
            let with_sdk = |with: &[Part]| {
                let template = language.template()?;
                Some(with_sdk(*language, template, "parcel-desk", with, false))
            };
            let all = choices().into_iter();
            for (files, with) in all.flat_map(|with| {
                let both = [Some(raw(&with)), with_sdk(&with)];
                both.into_iter()
                    .flatten()
                    .map(move |files| (files, with.clone()))
            }) {
                let texts: Vec<_> = files.values().map(|f| String::from_utf8_lossy(f)).collect();
                let holds = |text: &str| texts.iter().any(|file| file.contains(text));
                assert!(holds("parcel-desk"), "{language:?}");
                assert!(!holds("orders-handler") && !holds("orders_handler"));
                assert!(
                    !texts
                        .iter()
                        .any(|file| file.lines().any(|l| mark(l).is_some()))
                );
                let granted = String::from_utf8_lossy(&files["hostler.toml"]);
                for (part, grant) in [
                    (Part::Http, "[[grant.http]]"),
                    (Part::KeyValue, "[grant.key-value]"),
                    (Part::Publish, "[grant.publish]"),
                    (Part::Secrets, "[grant.secret]"),
                ] {
                    assert_eq!(granted.contains(grant), with.contains(&part), "{grant}");
                }
                assert_eq!(
                    files.contains_key("shop-token"),
                    with.contains(&Part::Secrets)
                );
            }
        }
    }
}
