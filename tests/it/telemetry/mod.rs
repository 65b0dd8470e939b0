//! Telemetry.

mod telemetry_otlp;
