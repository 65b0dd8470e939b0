//! Telemetry to a collector.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use crate::config::settings::section;
use crate::rollout::canary::Share;
use crate::telemetry::otlp::Protocol;
use crate::telemetry::otlp::dropped::Signal;

section! { "Telemetry";
    /// The URL of an OpenTelemetry collector, such as `http://localhost:4317`. It gets spans, metrics and log lines
    /// by OTLP.
    OTLP_ENDPOINT: Uri = ("otlp.endpoint", "URL").unset("nothing is sent");

    /// How they are sent: `grpc` (most collectors listen on port 4317), or `http` with bodies in protobuf (4318;
    /// the paths `/v1/traces`, `/v1/metrics` and `/v1/logs` are added to the URL).
    OTLP_PROTOCOL: Protocol = ("otlp.protocol", "PROTOCOL").default("grpc").only_with(&OTLP_ENDPOINT);

    /// A file with headers for every request, one `name: value` in a line: keys of the collector.
    OTLP_HEADERS_FILE: PathBuf = ("otlp.headers_file", "FILE").unset("none").only_with(&OTLP_ENDPOINT);

    /// A file with the certificates (PEM) that are trusted for an `https` URL.
    OTLP_CA: PathBuf = ("otlp.ca", "FILE").unset("those of the system").only_with(&OTLP_ENDPOINT);

    /// The signals that are sent: some of `traces`, `metrics`, `logs`.
    OTLP_SIGNALS: Vec<Signal> = ("otlp.signals", "LIST").default("traces, metrics, logs").only_with(&OTLP_ENDPOINT);

    /// The share of the messages without a `traceparent` whose attempts are recorded. A message with one is
    /// recorded if its producer records it.
    OTLP_SAMPLE: Share = ("otlp.sample", "SHARE").default("1%").only_with(&OTLP_ENDPOINT);

    /// How often metrics are sent.
    OTLP_METRICS_EVERY: Duration = ("otlp.metrics_every", "DURATION")
        .default("15s")
        .range(|| (Duration::from_secs(1), Duration::from_secs(60 * 60)))
        .only_with(&OTLP_ENDPOINT);

    /// `service.name` of everything that is sent.
    OTLP_SERVICE_NAME: String = ("otlp.service_name", "NAME").default("hostler").only_with(&OTLP_ENDPOINT);
}
