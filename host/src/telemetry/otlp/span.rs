//! Spans as the protocol has them. The names are those of the semantic conventions of OpenTelemetry for
//! messaging, HTTP and databases.

use std::time::Instant;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use crate::delivery::text::truncated;
use crate::delivery::trace::{Step, StepKind, Trace};
use crate::telemetry::otlp::tracer::Recorded;
use crate::telemetry::otlp::value::{attribute, number, text};

/// Bytes of a message's id in a span, and of the text of a fault.
const TEXT_MAX: usize = 256;
/// `flags`: whether the parent is in another process is known, and it is.
const IS_REMOTE: u32 = 0x300;
/// `flags`: it is known, and it is not.
const IS_LOCAL: u32 = 0x100;
/// `flags`: it is recorded.
const SAMPLED: u32 = 1;

/// The span of an attempt, and those of its steps.
pub(super) fn spans(recorded: &Recorded) -> impl Iterator<Item = Span> {
    let steps = recorded.steps.kept.iter();
    // The messages of an attempt are published with its ack only.
    let is_acked = recorded.outcome.is_none_or(|outcome| outcome == "ack");
    let happened = steps
        .filter(move |step| is_acked || !matches!(step.kind, StepKind::Publish { .. }))
        .map(|step| of_step(recorded, step));
    [of_attempt(recorded)].into_iter().chain(happened)
}

fn of_attempt(recorded: &Recorded) -> Span {
    let place = &recorded.place;
    let mut attributes = vec![
        text("messaging.system", "redis"),
        text("messaging.operation.type", "process"),
        text("messaging.operation.name", "process"),
        text("messaging.destination.name", &place.queue),
        text("messaging.client.id", &place.consumer),
        text("hostler.handler", &recorded.handler),
    ];
    if let Some(group) = &place.group {
        attributes.push(text("messaging.consumer.group.name", group));
    }
    if recorded.messages > 1 {
        let messages = recorded.messages as u64;
        attributes.push(number("messaging.batch.message_count", messages));
    } else {
        let id = truncated(&recorded.message_id, TEXT_MAX);
        attributes.push(text("messaging.message.id", id));
        let bytes = recorded.body_bytes as u64;
        attributes.push(number("messaging.message.body.size", bytes));
        attributes.push(number("hostler.attempt", recorded.attempt.into()));
    }
    if let Some(outcome) = recorded.outcome {
        attributes.push(text("hostler.outcome", outcome));
    }
    if recorded.steps.dropped > 0 {
        let dropped = recorded.steps.dropped.into();
        attributes.push(number("hostler.spans_dropped", dropped));
    }
    let status = recorded.fault.as_ref().map(|(kind, detail)| {
        attributes.push(text("error.type", kind.label()));
        failed(truncated(detail, TEXT_MAX))
    });
    let link = |trace: &Trace| Link {
        trace_id: trace.trace_number().to_be_bytes().to_vec(),
        span_id: trace.span_number().to_be_bytes().to_vec(),
        flags: SAMPLED | IS_REMOTE,
        ..Link::default()
    };
    let parent = recorded.parent.as_ref();
    Span {
        parent_span_id: parent.map_or_else(Vec::new, |parent| {
            parent.span_number().to_be_bytes().to_vec()
        }),
        flags: SAMPLED | parent.map_or(IS_LOCAL, |_| IS_REMOTE),
        name: format!("process {}", place.queue),
        kind: SpanKind::Consumer.into(),
        links: recorded.links.iter().map(link).collect(),
        status,
        ..span(
            recorded,
            recorded.trace.span_number(),
            (recorded.began, recorded.ended),
            attributes,
        )
    }
}

fn of_step(recorded: &Recorded, step: &Step) -> Span {
    let (name, kind, mut attributes) = match &step.kind {
        StepKind::Http {
            method,
            url,
            host,
            port,
            status,
            is_replayed,
        } => {
            let mut attributes = vec![
                text("http.request.method", method),
                text("url.full", url),
                text("server.address", host),
            ];
            attributes.extend(port.map(|port| number("server.port", port.into())));
            let status = status.map(|status| number("http.response.status_code", status.into()));
            attributes.extend(status);
            attributes
                .extend(is_replayed.then(|| attribute("hostler.replayed", Value::BoolValue(true))));
            (method.clone(), SpanKind::Client, attributes)
        }
        StepKind::Store { operation, keys } => {
            let mut attributes = vec![
                text("db.system.name", "redis"),
                text("db.operation.name", operation),
            ];
            if *keys > 1 {
                attributes.push(number("db.operation.batch.size", *keys as u64));
            }
            ((*operation).to_owned(), SpanKind::Client, attributes)
        }
        StepKind::Lookup { name } => {
            let attributes = vec![text("dns.question.name", name)];
            ("lookup".to_owned(), SpanKind::Client, attributes)
        }
        StepKind::Publish { to, bytes } => {
            let attributes = vec![
                text("messaging.system", "redis"),
                text("messaging.operation.type", "create"),
                text("messaging.operation.name", "publish"),
                text("messaging.destination.name", to),
                number("messaging.message.body.size", *bytes as u64),
            ];
            (format!("publish {to}"), SpanKind::Producer, attributes)
        }
    };
    let status = match &step.kind {
        StepKind::Http {
            status: Some(code), ..
        } if *code >= 400 => {
            attributes.push(text("error.type", &code.to_string()));
            Some(failed(""))
        }
        _ => step
            .error
            .or(step.ended.is_none().then_some("cancelled"))
            .map(|error| {
                attributes.push(text("error.type", error));
                failed(error)
            }),
    };
    Span {
        parent_span_id: recorded.trace.span_number().to_be_bytes().to_vec(),
        flags: SAMPLED | IS_LOCAL,
        name,
        kind: kind.into(),
        status,
        ..span(
            recorded,
            step.span_id,
            (step.began, step.ended.unwrap_or(recorded.ended)),
            attributes,
        )
    }
}

fn span(
    recorded: &Recorded,
    span_id: u64,
    (began, ended): (Instant, Instant),
    attributes: Vec<KeyValue>,
) -> Span {
    let ns = |at: Instant| {
        let after = at.saturating_duration_since(recorded.began).as_nanos();
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        recorded.began_ns.saturating_add(after)
    };
    Span {
        trace_id: recorded.trace.trace_number().to_be_bytes().to_vec(),
        span_id: span_id.to_be_bytes().to_vec(),
        start_time_unix_nano: ns(began),
        end_time_unix_nano: ns(ended),
        attributes,
        ..Span::default()
    }
}

fn failed(message: &str) -> Status {
    Status {
        message: message.to_owned(),
        code: StatusCode::Error.into(),
    }
}
