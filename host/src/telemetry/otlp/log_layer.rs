//! Log lines as records of the protocol.

use std::fmt;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::delivery::text::{truncate_utf8, truncated};
use crate::telemetry::otlp::dropped::{self, Signal};
use crate::telemetry::otlp::value::{any, attribute, now_ns};

/// The most bytes of a text.
const TEXT_MAX: usize = 16 << 10;
/// The target of what guests write.
const GUEST: &str = "guest";

/// Sends the lines of hostler and of its guests to the collector.
#[derive(Clone, Debug)]
pub struct LogLayer {
    lines: mpsc::Sender<Line>,
}

/// A log line on its way to the collector.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) record: LogRecord,
    /// A guest wrote it.
    pub(super) is_guest: bool,
}

impl LogLayer {
    pub(super) const fn new(lines: mpsc::Sender<Line>) -> Self {
        Self { lines }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let is_guest = target == GUEST;
        // The lines of the libraries may be about this very connection.
        if !is_guest && !target.starts_with("hostler") {
            return;
        }
        let Ok(place) = self.lines.try_reserve() else {
            dropped::add(Signal::Logs, 1);
            return;
        };
        let now = now_ns();
        let (severity, word) = severity(*event.metadata().level());
        let mut record = LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number: severity.into(),
            severity_text: word.to_owned(),
            ..LogRecord::default()
        };
        event.record(&mut Fields(&mut record));
        place.send(Line { record, is_guest });
    }
}

const fn severity(level: Level) -> (SeverityNumber, &'static str) {
    match level {
        Level::ERROR => (SeverityNumber::Error, "ERROR"),
        Level::WARN => (SeverityNumber::Warn, "WARN"),
        Level::INFO => (SeverityNumber::Info, "INFO"),
        Level::DEBUG => (SeverityNumber::Debug, "DEBUG"),
        Level::TRACE => (SeverityNumber::Trace, "TRACE"),
    }
}

/// The fields of an event. The text of a line and the ids of its span have places of their own.
struct Fields<'a>(&'a mut LogRecord);

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: Value) {
        let attribute: KeyValue = attribute(field.name(), value);
        self.0.attributes.push(attribute);
    }

    fn text(&mut self, field: &Field, mut text: String) {
        truncate_utf8(&mut text, TEXT_MAX);
        let body = |text| -> Option<AnyValue> { Some(any(Value::StringValue(text))) };
        match field.name() {
            // That of hostler, and that of a guest.
            "message" | "line" => self.0.body = body(text),
            "trace_id" => self.0.trace_id = bytes(&text),
            "span_id" => self.0.span_id = bytes(&text),
            _ => self.add(field, Value::StringValue(text)),
        }
    }
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.map_while(byte).collect()
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, truncated(value, TEXT_MAX).to_owned());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::BoolValue(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.add(field, Value::IntValue(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::DoubleValue(value));
    }
}
