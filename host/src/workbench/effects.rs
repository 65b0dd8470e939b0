//! What an attempt would publish and set, as `invoke` and `test` show it. Nothing is written to Redis.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use crate::config::Value;
use crate::delivery::effect::Publication;
use crate::delivery::key_value::Written;
use crate::delivery::millis::millis;
use crate::sandbox::Report;
use crate::workbench::text::cut;

/// How much of a body or of headers a line shows, in columns.
const SHOWN_MAX: usize = 200;

/// The effects of an attempt, in `--json`.
#[derive(Debug, Serialize)]
pub struct Effects<'a> {
    /// What an acknowledgement would publish, in order.
    published: Vec<Published<'a>>,
    /// What it would set, by the keys of the handler.
    set: Vec<Set<'a>>,
    /// What it would delete.
    deleted: Vec<&'a str>,
    /// What it would reply.
    reply: Option<Reply<'a>>,
    /// How many effects an attempt held that did not ack.
    discarded: usize,
}

/// A reply, in `--json`.
#[derive(Debug, Serialize)]
struct Reply<'a> {
    /// The value; `null` if it is not UTF-8.
    value: Option<&'a str>,
    /// The value that is not UTF-8.
    value_base64: Option<String>,
}

/// A message that would be published, in `--json`.
#[derive(Debug, Serialize)]
struct Published<'a> {
    to: &'a str,
    /// The body; `null` if it is not UTF-8.
    body: Option<&'a str>,
    /// The body that is not UTF-8.
    body_base64: Option<String>,
    /// The headers that the handler set.
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    delay_ms: Option<u64>,
}

/// A key that would be set, in `--json`.
#[derive(Debug, Serialize)]
struct Set<'a> {
    key: &'a str,
    /// The value; `null` if it is not UTF-8.
    value: Option<&'a str>,
    /// The value that is not UTF-8.
    value_base64: Option<String>,
    /// When it would expire, from the acknowledgement.
    ttl_ms: Option<u64>,
}

impl<'a> Effects<'a> {
    /// Those of this attempt. Every key in Redis begins with `prefix`.
    pub fn of(report: &'a Report, prefix: &str) -> Self {
        let written = written(report, prefix);
        Self {
            published: publications(report).iter().map(Published::of).collect(),
            set: written.iter().filter_map(Set::of).collect(),
            deleted: written
                .iter()
                .filter(|(_, written)| written.value.is_none())
                .map(|(key, _)| *key)
                .collect(),
            reply: reply(report).map(|reply| {
                let (value, value_base64) = text_or_base64(reply);
                Reply {
                    value,
                    value_base64,
                }
            }),
            discarded: report.discarded,
        }
    }
}

impl<'a> Published<'a> {
    fn of(publication: &'a Publication) -> Self {
        let (body, body_base64) = text_or_base64(&publication.body);
        Self {
            to: &publication.to,
            body,
            body_base64,
            headers: headers(publication).collect(),
            delay_ms: delay(publication).map(millis),
        }
    }
}

impl<'a> Set<'a> {
    fn of((key, written): (&&'a str, &&'a Written)) -> Option<Self> {
        let (value, value_base64) = text_or_base64(written.value.as_ref()?);
        Some(Self {
            key,
            value,
            value_base64,
            ttl_ms: written.ttl.map(millis),
        })
    }
}

/// The text, or else the bytes in Base64.
fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

/// What an acknowledgement would publish.
pub fn publications(report: &Report) -> &[Publication] {
    report
        .effects
        .as_deref()
        .map_or(&[], |effects| effects.publications())
}

/// What an acknowledgement would write, by the keys of the handler. Every key in Redis begins with
/// `prefix`.
pub fn written<'a>(report: &'a Report, prefix: &str) -> BTreeMap<&'a str, &'a Written> {
    let effects = report.effects.as_deref().into_iter();
    let written = effects.flat_map(|effects| effects.written());
    let of_handler =
        |(key, written): (&'a str, _)| (key.strip_prefix(prefix).unwrap_or(key), written);
    written.map(of_handler).collect()
}

/// What an acknowledgement would reply.
pub(super) fn reply(report: &Report) -> Option<&[u8]> {
    report.effects.as_ref()?.reply().map(|value| &value[..])
}

/// The delay of a message; none if it is due at once.
pub fn delay(publication: &Publication) -> Option<Duration> {
    publication.delay.filter(|delay| !delay.is_zero())
}

/// The same for people: a line for each effect.
pub fn lines(report: &Report, prefix: &str) -> Vec<String> {
    let mut lines: Vec<String> = publications(report).iter().map(line).collect();
    for (key, written) in written(report, prefix) {
        let key = cut(key, SHOWN_MAX);
        lines.push(match (&written.value, written.ttl) {
            (None, _) => format!("would delete {key}"),
            (Some(value), None) => format!("would set {key}: {}", content(value, 0)),
            (Some(value), Some(ttl)) => {
                format!("would set {key} for {}: {}", ttl.show(), content(value, 0))
            }
        });
    }
    if let Some(value) = reply(report) {
        lines.push(format!("would reply: {}", content(value, 0)));
    }
    match report.discarded {
        0 => {}
        1 => lines.push("would publish and set nothing (1 held effect is discarded)".to_owned()),
        n => lines.push(format!(
            "would publish and set nothing ({n} held effects are discarded)"
        )),
    }
    lines
}

fn line(publication: &Publication) -> String {
    let mut line = format!("would publish to {}", publication.to);
    if let Some(delay) = delay(publication) {
        line.push_str(&format!(" after {}", delay.show()));
    }
    let headers: Vec<String> = headers(publication)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !headers.is_empty() {
        let headers = cut(&headers.join(", "), SHOWN_MAX);
        line.push_str(&format!(" with {headers}"));
    }
    format!("{line}: {}", content(&publication.body, 0))
}

/// A body or a value on one line, from this character on.
pub fn content(bytes: &[u8], from: usize) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if from == 0 => cut(text, SHOWN_MAX),
        Ok(text) => {
            let rest: String = text.chars().skip(from).collect();
            format!("…{}", cut(&rest, SHOWN_MAX))
        }
        Err(_) => format!("({} bytes that are not text)", bytes.len()),
    }
}

fn headers(publication: &Publication) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let pairs = publication.headers.iter();
    pairs.map(|(name, value)| {
        (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        )
    })
}
