//! `hostler check`: describes a component, or checks a configuration. Runs nothing.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::flags::{All, Common, checked};
use crate::cli::message;
use crate::cli::text::{or_dash, size};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::{self, ByteSize, Collected, Config, Effective, Problem, ProblemKind, Value};
use crate::grants::Need;
use crate::host::component;
use crate::sandbox::{Description, ExitCodes, Settings, Start};

/// Say what a component is and needs, or whether a configuration is right
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hostler check FILE.wasm [FLAGS]\n       hostler check --config FILE.toml [FLAGS]",
    after_help = "\
Examples:
  hostler check handler.wasm                  world, imports, size, digest
  hostler check handler.wasm --memory 8MiB    would it start with less memory?
  hostler check --config orders.toml          every setting and its source
  hostler check --config orders.toml --json   the same for machines"
)]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: Option<PathBuf>,

    #[command(flatten)]
    common: Common<All>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let flags = args.common.flags.or_beside(&variables);
    if args.file.is_none() && !flags.is_configured(&variables) {
        let hint = "give a component, or `--config FILE.toml`";
        return Err(Failure::new(Exit::Usage, "there is nothing to check").hint(hint));
    }
    let collected = flags.collect(variables);
    match args.file {
        Some(file) => check_component(&file, &collected.sandbox()?, args.common.json),
        None => check_config(collected, args.common.json),
    }
}

fn check_config(collected: Collected, json: bool) -> Result<Exit, Failure> {
    let effective = collected.effective();
    let loaded = collected.config().and_then(|loaded| {
        let file = &loaded.value.handler.file;
        match message::is_file(file) {
            Ok(()) => Ok(loaded),
            Err(error) => Err(no_handler(file, &error, &loaded.value, &effective)),
        }
    });
    if json {
        let (problems, warnings) = match &loaded {
            Ok(loaded) => (&[][..], loaded.warnings.as_slice()),
            Err(error) => (error.problems.as_slice(), &[][..]),
        };
        output::json(&CheckedConfig {
            ok: loaded.is_ok(),
            problems,
            warnings,
            settings: &effective,
        })?;
    }
    checked(loaded)?;
    if !json {
        let rows = effective.into_iter().map(|setting| {
            let (key, source) = (setting.key.to_owned(), setting.source.to_string());
            [key, or_dash(setting.value), source]
        });
        output::line(&output::titled(["setting", "value", "from"], rows))?;
    }
    Ok(Exit::Ok)
}

/// A host with this configuration would not start.
fn no_handler(
    file: &Path,
    error: &std::io::Error,
    config: &Config,
    effective: &[Effective],
) -> config::Error {
    let handler = effective.iter().find(|setting| setting.key == "handler");
    let kind = ProblemKind::Value {
        key: "handler",
        what: format!("cannot read {}: {error}", file.display()),
    };
    let problem = Problem::new(handler.map(|handler| handler.source.clone()), kind);
    let build = config.development.build.as_ref();
    let problem = problem.hint(build.map(|build| format!("build it: {build}")));
    config::Error {
        problems: vec![problem],
    }
}

/// The shape of `--config --json`.
#[derive(Serialize)]
struct CheckedConfig<'a> {
    ok: bool,
    problems: &'a [Problem],
    warnings: &'a [Problem],
    settings: &'a [Effective],
}

fn check_component(file: &Path, settings: &Settings, json: bool) -> Result<Exit, Failure> {
    let sandbox = component::load(file, settings)?;
    let component = ComponentJson {
        ok: true,
        digest: sandbox.digest(),
        description: sandbox.describe(),
    };
    output::either(json, &component, |component| {
        component_text(component.description, component.digest, settings)
    })
}

/// The shape of `FILE --json`.
#[derive(Serialize)]
struct ComponentJson<'a> {
    ok: bool,
    digest: &'a str,
    #[serde(flatten)]
    description: &'a Description,
}

fn component_text(description: &Description, digest: &str, settings: &Settings) -> String {
    let limits = &settings.limits;
    let compiled = match description.cached {
        true => "loaded in",
        false => "compiled in",
    };
    let memory = size(description.memory_initial);
    let memory_max = ByteSize(limits.memory as u64).show();
    let (elements, elements_max) = (description.table_initial, limits.table_elements);
    let instances = match description.pooling {
        true => "from a pool",
        false => "mapped one by one",
    };
    let facts = [
        ("handler", description.interface.clone()),
        ("digest", digest.to_owned()),
        ("size", size(description.size)),
        (compiled, format!("{:.1?}", description.compile)),
        (
            "memory",
            format!("{memory} at the start (limit {memory_max})"),
        ),
        (
            "tables",
            format!("{elements} elements at the start (limit {elements_max})"),
        ),
        ("instances", instances.to_owned()),
    ];
    let codes = description.exit_codes.map(|codes| match codes {
        ExitCodes::All => "all",
        ExitCodes::ZeroOrOne => {
            "only 0 and 1; after a failure the last line of stderr may be `hostler: nack 5s` or \
             `hostler: drop REASON`"
        }
    });
    let codes = codes.map(|codes| ("exit codes", codes.to_owned()));
    let start = match &description.start {
        Start::Short => None,
        Start::Snapshot { instructions } => Some(format!(
            "from a snapshot: an instance need not run {instructions} instructions"
        )),
        Start::Whole { reason } => Some(format!("in each instance, without a snapshot: {reason}")),
    };
    let start = start.map(|start| ("start", start));
    let facts = facts.into_iter().chain(start).chain(codes);
    let facts = output::table(facts.map(|(name, value)| [name.to_owned(), value]));
    if description.imports.is_empty() {
        return format!("{facts}\n\nimports  nothing");
    }
    let rows = description.imports.iter().map(|import| {
        let need = match import.need {
            Need::Nothing => "always there".to_owned(),
            Need::Inert if import.is_socket() && settings.grants.provided.tcp.is_some() => {
                "by the grant `tcp`".to_owned()
            }
            Need::Inert if import.is_file() && !settings.grants.files.is_empty() => {
                "by the grant `files`".to_owned()
            }
            Need::Inert => "there, but empty".to_owned(),
            Need::Grant(grant) => format!("by the grant `{grant}`"),
            Need::Unknown => "unknown to this host".to_owned(),
        };
        [format!("  {}", import.name), need]
    });
    format!("{facts}\n\nimports\n{}", output::table(rows))
}
