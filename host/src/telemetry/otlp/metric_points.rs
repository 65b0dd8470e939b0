//! The metrics of a host as the protocol has them, read from the text of `/metrics`: a metric is declared once,
//! and is the same in both.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use crate::telemetry::otlp::value::text;

/// When the series began, and when they were read: epoch nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start_ns: u64,
    pub(super) now_ns: u64,
}

/// The series of this OpenMetrics text. `hostler_handler_seconds` is `hostler.handler` in seconds: a Prometheus
/// that takes it by this protocol shows the name of `/metrics` again.
pub(super) fn metrics(text: &str, times: Times) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut family = Family::default();
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(comment) => {
                let mut words = comment.splitn(3, ' ');
                let (word, name) = (words.next(), words.next().unwrap_or_default());
                let rest = words.next().unwrap_or_default();
                if name != family.name {
                    metrics.extend(std::mem::take(&mut family).metric(times));
                    name.clone_into(&mut family.name);
                }
                match word {
                    Some("HELP") => rest.clone_into(&mut family.help),
                    Some("TYPE") => rest.clone_into(&mut family.kind),
                    Some("UNIT") => rest.clone_into(&mut family.unit),
                    _ => {}
                }
            }
            None => family.samples.extend(Sample::parse(line)),
        }
    }
    metrics.extend(family.metric(times));
    metrics
}

/// The series of one name.
#[derive(Debug, Default)]
struct Family {
    name: String,
    help: String,
    kind: String,
    unit: String,
    samples: Vec<Sample>,
}

/// One line.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: String,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let mut labels = Vec::new();
        let value = match rest.strip_prefix('{') {
            None => rest,
            Some(mut rest) => loop {
                if let Some(value) = rest.strip_prefix('}') {
                    break value;
                }
                let (label, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
                let (value, length) = unquoted(quoted)?;
                labels.push((label.to_owned(), value));
                rest = quoted.get(length..)?;
            },
        };
        Some(Self {
            name: name.to_owned(),
            labels,
            value: value.split_whitespace().next()?.to_owned(),
        })
    }

    fn number(&self) -> Option<Value> {
        let whole = self.value.parse().map(Value::AsInt);
        whole
            .or_else(|_| self.value.parse().map(Value::AsDouble))
            .ok()
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let labels = self.labels.iter().filter(|(name, _)| name != "le");
        labels.map(|(name, value)| text(name, value)).collect()
    }
}

/// The text up to the closing quote, and how many bytes it takes with it.
fn unquoted(quoted: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((text, at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                c => text.push(c),
            },
            c => text.push(c),
        }
    }
    None
}

impl Family {
    fn metric(self, times: Times) -> Option<Metric> {
        if self.samples.is_empty() {
            return None;
        }
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match self.kind.as_str() {
            "counter" => Data::Sum(Sum {
                data_points: self.points(times),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            "histogram" => Data::Histogram(Histogram {
                data_points: self.histograms(times),
                aggregation_temporality: cumulative,
            }),
            _ => Data::Gauge(Gauge {
                data_points: self.points(times),
            }),
        };
        let suffix = if self.kind == "info" { ".info" } else { "" };
        let base = self.name.strip_prefix("hostler_").unwrap_or(&self.name);
        let (base, unit) = match base.strip_suffix("_seconds") {
            Some(base) if self.unit == "seconds" => (base, "s"),
            _ => (base, ""),
        };
        Some(Metric {
            name: format!("hostler.{base}{suffix}"),
            description: self.help,
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        })
    }

    fn points(&self, times: Times) -> Vec<NumberDataPoint> {
        let point = |sample: &Sample| NumberDataPoint {
            attributes: sample.attributes(),
            start_time_unix_nano: times.start_ns,
            time_unix_nano: times.now_ns,
            value: sample.number(),
            ..NumberDataPoint::default()
        };
        self.samples.iter().map(point).collect()
    }

    fn histograms(&self, times: Times) -> Vec<HistogramDataPoint> {
        // The lines of one histogram differ in `le` only.
        let mut points: BTreeMap<Vec<(String, String)>, (HistogramDataPoint, u64)> =
            BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.retain(|(name, _)| name != "le");
            let (point, below) = points.entry(labels).or_insert_with(|| {
                let point = HistogramDataPoint {
                    attributes: sample.attributes(),
                    start_time_unix_nano: times.start_ns,
                    time_unix_nano: times.now_ns,
                    ..HistogramDataPoint::default()
                };
                (point, 0)
            });
            let bound = sample.labels.iter().find(|(name, _)| name == "le");
            match (bound, sample.name.strip_prefix(&self.name)) {
                (Some((_, bound)), _) => {
                    let total: u64 = sample.value.parse().unwrap_or(*below);
                    point.bucket_counts.push(total.saturating_sub(*below));
                    *below = total;
                    // The last one has no bound in the protocol.
                    let bound = bound.parse().ok();
                    let bound = bound.filter(|bound: &f64| bound.is_finite());
                    point.explicit_bounds.extend(bound);
                }
                (None, Some("_sum")) => point.sum = sample.value.parse().ok(),
                (None, Some("_count")) => point.count = sample.value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        points.into_values().map(|(point, _)| point).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_proto::tonic::common::v1::any_value;

    use super::*;
    use crate::telemetry::health::Health;
    use crate::telemetry::metrics::Metrics;

    fn exported(metrics: &Metrics) -> Vec<Metric> {
        let text = metrics.render(&Health::default());
        let times = Times {
            start_ns: 1,
            now_ns: 2,
        };
        super::metrics(&text, times)
    }

    fn label(attributes: &[KeyValue], name: &str) -> Option<String> {
        let found = attributes.iter().find(|attribute| attribute.key == name)?;
        match found.value.clone()?.value? {
            any_value::Value::StringValue(text) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn every_declared_metric_is_exported_with_its_type_and_help() {
        let metrics = Metrics::new("orders", Some("billing"));
        let exported = exported(&metrics);
        for declared in &metrics.declared {
            // These have no series before there is a rule, and before a message waits.
            let later = ["http_", "limited_for"];
            if later.iter().any(|part| declared.name.contains(part)) {
                continue;
            }
            let base = declared.name.trim_start_matches("hostler_");
            let base = base.trim_end_matches("_total").trim_end_matches("_seconds");
            let name = format!("hostler.{}", base.replace("_info", ".info"));
            let metric = exported.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{name} of {}", declared.name));
            let kind = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => {
                    assert!(sum.is_monotonic, "{name}");
                    "counter"
                }
                Data::Histogram(_) => "histogram",
                _ if name.ends_with(".info") => "info",
                _ => "gauge",
            };
            assert_eq!(kind, declared.kind, "{name}");
            assert_eq!(
                metric.description.trim_end_matches('.'),
                declared.help.trim_end_matches('.'),
                "{name}"
            );
        }
    }

    #[test]
    fn values_labels_and_buckets_are_those_of_the_text() {
        let metrics = Metrics::new("or\"ders\\\n{x} = 1", None);
        metrics.swap_refused("size");
        for ms in [1, 1, 30, 100_000] {
            metrics.handler_seconds.observe(Duration::from_millis(ms));
        }
        let exported = exported(&metrics);
        let find = |name: &str| exported.iter().find(|m| m.name == name).unwrap();
        let Some(Data::Sum(refused)) = &find("hostler.swaps_refused").data else {
            panic!("no counter");
        };
        let size = refused.data_points.iter();
        let mut size = size.filter(|p| label(&p.attributes, "step").as_deref() == Some("size"));
        let point = size.next().unwrap();
        assert_eq!(point.value, Some(Value::AsInt(1)));
        assert_eq!(
            label(&point.attributes, "queue").as_deref(),
            Some("or\"ders\\\n{x} = 1")
        );
        let handler = find("hostler.handler");
        assert_eq!(handler.unit, "s");
        let Some(Data::Histogram(histogram)) = &handler.data else {
            panic!("no histogram");
        };
        let [point] = histogram.data_points.as_slice() else {
            panic!("one series");
        };
        assert_eq!((point.count, point.bucket_counts.iter().sum()), (4, 4_u64));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.last(), Some(&1));
        let of_one = point
            .explicit_bounds
            .iter()
            .position(|bound| *bound == 0.001);
        assert_eq!(point.bucket_counts[of_one.unwrap()], 2);
        assert!((point.sum.unwrap() - 100.032).abs() < 1e-9);
    }
}
