//! As `scripted`, and actions on keys by `wasi:keyvalue`. `one:CALL` uses the first draft, `two:CALL` the
//! second one. Calls: `open:NAME`, `set:KEY=VALUE`, `delete:KEY`, `sets:KEY=VALUE|KEY=VALUE...`,
//! `deletes:KEY|KEY...`, `raise:KEY:DELTA`, and those that answer by a drop reason: `get:KEY`, `has:KEY`,
//! `gets:KEY|KEY...`, `keys` (all of them, in order), `increment:KEY:DELTA`. Only the second draft has `swap:KEY=VALUE`
//! (once) and `add:KEY` (adds 1 to a number, until no other change is in between). `bad-cursor` lists from a cursor
//! that there is not. An error is the reason of a drop.

use script::{Message, Outcome, Step};

wit_bindgen::generate!({ path: "wit", world: "standard-keys", generate_all });

use wasi::keyvalue0_2_0_draft as first;
use wasi::keyvalue0_2_0_draft2 as second;

struct StandardKeys;

type Said = Result<Option<String>, String>;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn text(value: Option<Vec<u8>>) -> String {
    value.map_or("none".to_owned(), |value| {
        String::from_utf8_lossy(&value).into_owned()
    })
}

fn pair(text: &str) -> (String, Vec<u8>) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (key.to_owned(), value.as_bytes().to_vec())
}

fn list(text: &str) -> Vec<String> {
    text.split('|').map(str::to_owned).collect()
}

macro_rules! calls {
    ($draft:ident, $number:ty, $next:ident: $passed:expr, $shown:expr) => {
        pub fn $draft(name: &str, argument: &str) -> Said {
            use $draft::{atomics, batch, store};

            let wrong = |error: store::Error| match error {
                store::Error::Other(why) => why,
                error => format!("{error:?}"),
            };
            let bucket = store::open("default").map_err(wrong)?;
            let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
            let increment = || {
                let delta: $number = number(rest);
                atomics::increment(&bucket, first, delta).map_err(wrong)
            };
            match name {
                "open" => store::open(argument).map_err(wrong).map(|_| None),
                "get" => bucket.get(argument).map_err(wrong).map(|v| Some(text(v))),
                "has" => bucket
                    .exists(argument)
                    .map_err(wrong)
                    .map(|v| Some(v.to_string())),
                "set" => {
                    let (key, value) = pair(argument);
                    bucket.set(&key, &value).map_err(wrong).map(|()| None)
                }
                "delete" => bucket.delete(argument).map_err(wrong).map(|()| None),
                "sets" => {
                    let pairs: Vec<_> = argument.split('|').map(pair).collect();
                    batch::set_many(&bucket, &pairs)
                        .map_err(wrong)
                        .map(|()| None)
                }
                "deletes" => batch::delete_many(&bucket, &list(argument))
                    .map_err(wrong)
                    .map(|()| None),
                "gets" => {
                    let found = batch::get_many(&bucket, &list(argument)).map_err(wrong)?;
                    Ok(Some(
                        found.into_iter().map($shown).collect::<Vec<_>>().join(" "),
                    ))
                }
                "keys" => {
                    let (mut keys, mut $next) = (Vec::new(), None);
                    loop {
                        let page = bucket.list_keys($passed).map_err(wrong)?;
                        keys.extend(page.keys);
                        $next = page.cursor;
                        if $next.is_none() {
                            keys.sort();
                            return Ok(Some(keys.join(" ")));
                        }
                    }
                }
                "increment" => increment().map(|sum| Some(sum.to_string())),
                "raise" => increment().map(|_| None),
                _ => panic!("no call `{name}`"),
            }
        }
    };
}

mod calls {
    use super::*;

    calls!(first, u64, next: next, |pair: Option<(String, Vec<u8>)>| match pair {
        Some((key, value)) => format!("{key}={}", text(Some(value))),
        None => "none".to_owned(),
    });
    calls!(second, i64, next: next.as_deref(), |(key, value): (String, Option<Vec<u8>>)| {
        format!("{key}={}", text(value))
    });
}

/// What only the second draft has; `None` = something else.
fn swaps(name: &str, argument: &str) -> Option<Said> {
    use second::atomics::{Cas, CasError, swap};
    use second::store::{Error, open};

    let wrong = |error: Error| match error {
        Error::Other(why) => why,
        error => format!("{error:?}"),
    };
    let bucket = open("default").ok()?;
    Some(match name {
        "swap" => {
            let (key, value) = pair(argument);
            Cas::new(&bucket, &key)
                .map_err(wrong)
                .and_then(|cas| match swap(cas, &value) {
                    Ok(()) => Ok(None),
                    Err(CasError::CasFailed(_)) => Err("another value".to_owned()),
                    Err(CasError::StoreError(error)) => Err(wrong(error)),
                })
        }
        "add" => Cas::new(&bucket, argument)
            .map_err(wrong)
            .and_then(|mut cas| {
                loop {
                    let before: u64 = cas
                        .current()
                        .map_err(wrong)?
                        .map_or(0, |v| number(&text(Some(v))));
                    match swap(cas, (before + 1).to_string().as_bytes()) {
                        Ok(()) => return Ok(None),
                        Err(CasError::CasFailed(next)) => cas = next,
                        Err(CasError::StoreError(error)) => return Err(wrong(error)),
                    }
                }
            }),
        "bad-cursor" => bucket.list_keys(Some("x")).map_err(wrong).map(|_| None),
        _ => return None,
    })
}

impl script::Guest for StandardKeys {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            let (call, rest) = argument.split_once(':').unwrap_or((argument, ""));
            let said = match name {
                "one" => calls::first(call, rest),
                "two" => swaps(call, rest).unwrap_or_else(|| calls::second(call, rest)),
                _ => return None,
            };
            Some(match said {
                Ok(None) => Step::Continue,
                Ok(Some(said)) | Err(said) => Step::Answer(Outcome::Drop(Some(said))),
            })
        })
    }
}

script::export!(StandardKeys);
