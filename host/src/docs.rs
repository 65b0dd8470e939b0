//! The generated parts of the documentation. Facts stand in the code, each once, and this test copies
//! them between `<!-- generated: NAME -->` and `<!-- end -->` in the pages of `docs/`.

use std::fmt::Write;
use std::path::Path;

use crate::cli::exit::Exit;
use crate::config::settings::SECTIONS;
use crate::delivery::effect;
use crate::delivery::message;
use crate::delivery::outcome::FaultKind;
use crate::delivery::policy::Reason;
use crate::delivery::reply;
use crate::telemetry::health::Cause;
use crate::telemetry::metrics::Metrics;
use crate::wire::{dead_letter, death};

/// Pages, and the blocks that they hold.
const PAGES: [(&str, &[&str]); 7] = [
    ("configuration.md", &["settings"]),
    ("metrics.md", &["metrics", "causes"]),
    ("commands.md", &["exit-codes"]),
    ("dead-letters.md", &["reasons"]),
    ("internals/dead-letters.md", &["dead-letter-headers"]),
    ("producers.md", &["message-headers"]),
    ("sandbox.md", &["faults"]),
];

/// The text of a block.
fn block(name: &str) -> String {
    let code = |text: &str| format!("`{text}`");
    match name {
        "settings" => settings(),
        "metrics" => metrics(),
        "causes" => table(
            &["cause", "meaning"],
            Cause::ALL.map(|cause| vec![code(cause.label()), cause.meaning().into()]),
        ),
        "exit-codes" => table(
            &["code", "meaning"],
            Exit::ALL
                .iter()
                .map(|(exit, meaning)| vec![(*exit as u8).to_string(), (*meaning).to_owned()]),
        ),
        "reasons" => table(
            &["reason", "meaning"],
            Reason::ALL.map(|reason| {
                let label = reason.label();
                vec![format!("[`{label}`](#{label})"), reason.meaning().into()]
            }),
        ),
        "faults" => table(
            &["fault", "meaning"],
            FaultKind::ALL.map(|kind| vec![code(kind.label()), kind.meaning().into()]),
        ),
        "dead-letter-headers" => headers(&[dead_letter::HEADERS, death::HEADERS]),
        "message-headers" => headers(&[message::HEADERS, effect::HEADERS, reply::HEADERS]),
        _ => panic!("no block is called `{name}`"),
    }
}

fn settings() -> String {
    let code = |text: &str| format!("`{text}`");
    let mut text = String::new();
    for section in SECTIONS {
        let rows = section.settings.iter().map(|setting| {
            let key = match setting.is_variable_only() {
                true => code(&setting.variable()),
                false => {
                    let (key, flag) = (setting.key(), setting.flag());
                    // The page says how a flag follows from its key.
                    let own =
                        (flag != key.replace(['.', '_'], "-")).then(|| format!(", `--{flag}`"));
                    format!("`{key}`{}", own.unwrap_or_default())
                }
            };
            let default = setting.default().map(|text| format!("`{text}`"));
            let live = match (setting.is_live(), setting.is_live_in_file()) {
                (true, _) => " *Live.*",
                (false, true) => " *Live, in the file.*",
                (false, false) => "",
            };
            let range = setting.range();
            let range = range.map(|(low, high)| format!(", {low} to {high}"));
            vec![
                key,
                format!("{}{}", setting.type_name(), range.unwrap_or_default()),
                default.unwrap_or_else(|| setting.unset().to_owned()),
                format!("{}{live}", setting.meaning()),
            ]
        });
        let columns = ["key", "type", "default", "meaning"];
        let table = table(&columns, rows);
        write!(text, "\n## {}\n\n{table}", section.title).unwrap();
    }
    text.trim_start().to_owned()
}

fn metrics() -> String {
    let metrics = Metrics::default();
    let rows = metrics.declared.iter().map(|metric| {
        let labels = metric
            .labels
            .iter()
            .map(|(label, values)| match values.is_empty() {
                true => format!("`{label}`"),
                false => format!("`{label}`: `{}`", values.join("`, `")),
            });
        vec![
            format!("`{}`", metric.name),
            metric.kind.to_owned(),
            labels.collect::<Vec<_>>().join("; "),
            metric.help.to_owned(),
        ]
    });
    table(&["name", "type", "labels", "meaning"], rows)
}

fn headers(lists: &[&[(&str, &str)]]) -> String {
    let rows = lists.iter().flat_map(|list| list.iter());
    table(
        &["header", "meaning"],
        rows.map(|(name, meaning)| vec![format!("`{name}`"), (*meaning).to_owned()]),
    )
}

fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!(
        "| {} |\n|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(text, "| {} |", cells.join(" | ")).unwrap();
    }
    text
}

/// The page with its blocks as the code has them.
fn fresh(page: &str, blocks: &[&str]) -> String {
    let mut page = page.to_owned();
    for name in blocks {
        let begin = format!("<!-- generated: {name} -->\n");
        let (before, rest) = page
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once("<!-- end -->").expect("a block has an end");
        page = format!("{before}{begin}{}<!-- end -->{after}", block(name));
    }
    page
}

/// The file is the same as the code has it; with `UPDATE_DOCS` it is written.
fn kept(path: &Path, kept: &str, fresh: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, fresh).unwrap();
    } else {
        let hint = "run: UPDATE_DOCS=1 cargo test -p hostler docs";
        assert!(kept == fresh, "{} is stale; {hint}", path.display());
    }
}

#[test]
fn the_schemas_in_the_docs_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema");
    for (name, fresh) in crate::cli::schemas() {
        let path = folder.join(name);
        kept(
            &path,
            &std::fs::read_to_string(&path).unwrap_or_default(),
            &fresh,
        );
    }
}

#[test]
fn the_generated_parts_of_the_docs_are_fresh() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for (name, blocks) in PAGES {
        let path = docs.join(name);
        let page = std::fs::read_to_string(&path).unwrap();
        kept(&path, &page, &fresh(&page, blocks));
    }
}

/// A Grafana dashboard with a panel for each metric. It needs no other figures than `/metrics`.
fn grafana() -> String {
    let metrics = Metrics::default();
    let shown = metrics.declared.iter().filter(|m| m.kind != "info");
    let panels = shown.enumerate().map(|(at, metric)| {
        let (name, filter) = (&metric.name, "{queue=~\"$queue\"}");
        let labels = metric.labels.iter().map(|(label, _)| *label);
        let by = ["queue", "group"].into_iter().chain(labels);
        let by = by.collect::<Vec<_>>().join(", ");
        let target = |expr: String, legend: &str| {
            serde_json::json!({ "expr": expr, "legendFormat": legend, "refId": "A" })
        };
        let mut targets = match metric.kind {
            "counter" => vec![target(
                format!("sum by ({by}) (rate({name}{filter}[$__rate_interval]))"),
                "__auto",
            )],
            "histogram" => [("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99")]
                .map(|(quantile, legend)| {
                    let rate = format!("rate({name}_bucket{filter}[$__rate_interval])");
                    let expr = format!("histogram_quantile({quantile}, sum by ({by}, le) ({rate}))");
                    target(expr, &format!("{{{{queue}}}} {legend}"))
                })
                .to_vec(),
            _ => vec![target(format!("max by ({by}) ({name}{filter})"), "__auto")],
        };
        for (target, id) in targets.iter_mut().zip(["A", "B", "C"]) {
            target["refId"] = id.into();
        }
        let is_time = name.ends_with("_seconds");
        let unit = match (metric.kind, is_time) {
            ("counter", _) => "cps",
            (_, true) => "s",
            (_, false) => "short",
        };
        serde_json::json!({
            "id": at + 1,
            "type": "timeseries",
            "title": name,
            "description": metric.help,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
            "gridPos": { "h": 7, "w": 8, "x": at % 3 * 8, "y": at / 3 * 7 },
            "targets": targets,
        })
    });
    let dashboard = serde_json::json!({
        "title": "hostler",
        "uid": "hostler",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus" },
            {
                "name": "queue", "type": "query", "multi": true, "includeAll": true, "refresh": 2,
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "query": "label_values(hostler_ready, queue)",
            },
        ] },
        "panels": panels.collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&dashboard).unwrap() + "\n"
}

#[test]
fn the_grafana_dashboard_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/monitoring/grafana.json");
    let fresh = grafana();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    } else {
        let hint = "run: UPDATE_DOCS=1 cargo test -p hostler docs";
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == fresh,
            "docs/monitoring/grafana.json is stale; {hint}"
        );
    }
}
