//! `hostler check`: what is this component, and is this configuration right? Runs nothing.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{All, Flags};
use crate::cli::{Variables, compile_component, flags, output};
use crate::config::{self, ByteSize, Collected, Effective, Problem, Value};
use crate::delivery::millis::millis;
use crate::sandbox::{self, Description, Import, LoadError, Need, Sandbox, Settings};

/// Say what a component is and needs, or whether a configuration is right
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hostler check FILE.wasm [FLAGS]\n       hostler check --config FILE.toml [FLAGS]",
    after_help = "\
Examples:
  hostler check handler.wasm                  world, imports, size, digest
  hostler check handler.wasm --memory 8MiB    would it start with less memory?
  hostler check --config orders.toml          every setting, and where it comes from
  hostler check --config orders.toml --json   the same for machines"
)]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<All>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    if args.file.is_none() && !args.flags.is_configured(&variables) {
        let hint = "give a component, or `--config FILE.toml`";
        return Err(Failure::new(Exit::Usage, "there is nothing to check").hint(hint));
    }
    let collected = args.flags.collect(variables);
    match args.file {
        Some(file) => check_component(&file, &collected.sandbox()?, args.json),
        None => check_config(collected, args.json),
    }
}

fn check_config(collected: Collected, json: bool) -> Result<Exit, Failure> {
    let effective = collected.effective();
    let checked = collected.config();
    if json {
        let (problems, warnings) = match &checked {
            Ok(loaded) => (&[][..], loaded.warnings.as_slice()),
            Err(error) => (error.problems.as_slice(), &[][..]),
        };
        output::json(&Checked {
            ok: checked.is_ok(),
            problems: problems.iter().map(told).collect(),
            warnings: warnings.iter().map(told).collect(),
            settings: effective.iter().map(stands).collect(),
        })?;
    }
    let loaded = checked?;
    flags::warn(&loaded.warnings);
    if !json {
        let rows = effective.iter().map(|setting| {
            let value = setting.value.as_deref().unwrap_or("-");
            [
                setting.key.to_owned(),
                value.to_owned(),
                setting.source.to_string(),
            ]
        });
        let head = ["setting", "value", "from"].map(str::to_owned);
        output::line(&output::table(std::iter::once(head).chain(rows)))?;
    }
    Ok(Exit::Ok)
}

/// The shape of `--config --json`.
#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    problems: Vec<Told<'a>>,
    warnings: Vec<Told<'a>>,
    settings: Vec<Stands<'a>>,
}

#[derive(Serialize)]
struct Told<'a> {
    source: Option<String>,
    what: String,
    hint: Option<&'a str>,
}

#[derive(Serialize)]
struct Stands<'a> {
    key: &'static str,
    value: Option<&'a str>,
    source: String,
}

fn told(problem: &Problem) -> Told<'_> {
    Told {
        source: problem.source.as_ref().map(config::Source::to_string),
        what: problem.kind.to_string(),
        hint: problem.hint.as_deref(),
    }
}

fn stands(setting: &Effective) -> Stands<'_> {
    Stands {
        key: setting.key,
        value: setting.value.as_deref(),
        source: setting.source.to_string(),
    }
}

fn check_component(file: &Path, settings: &Settings, json: bool) -> Result<Exit, Failure> {
    let sandbox = load(file, settings)?;
    let description = sandbox.describe();
    if json {
        output::json(&component(description, sandbox.digest()))?;
    } else {
        output::line(&component_text(description, sandbox.digest(), settings))?;
    }
    Ok(Exit::Ok)
}

/// Load a component, or say why it cannot be run.
pub(super) fn load(file: &Path, settings: &Settings) -> Result<Sandbox, Failure> {
    let bytes = read(file, settings.limits.component)?;
    load_bytes(file, &bytes, settings)
}

/// Read a component's file.
pub(super) fn read(file: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    sandbox::read(file, max).map_err(|error| refused(file, &error))
}

/// As [`load`], of what was read.
pub(super) fn load_bytes(
    file: &Path,
    bytes: &[u8],
    settings: &Settings,
) -> Result<Sandbox, Failure> {
    let settings = Settings {
        compiler: compile_component::compiler()?,
        ..settings.clone()
    };
    Sandbox::load_bytes(bytes, &settings).map_err(|error| refused(file, &error))
}

fn refused(file: &Path, error: &LoadError) -> Failure {
    let exit = match error {
        // A wrong path is a mistake of the command line, not of the component.
        LoadError::Read(_) => Exit::Usage,
        _ => Exit::Component,
    };
    let what = format!("{} {error}", file.display());
    // The error names the remedy behind its last semicolon.
    match what.rsplit_once("; ") {
        Some((what, remedy)) => Failure::new(exit, what).hint(remedy),
        None => Failure::new(exit, what),
    }
}

/// The shape of `FILE --json`.
#[derive(Serialize)]
struct Component<'a> {
    ok: bool,
    digest: &'a str,
    interface: &'a str,
    exports: &'a [String],
    imports: Vec<Imported<'a>>,
    size_bytes: u64,
    compile_ms: u64,
    /// It had been compiled before: that is how long it took to read.
    cached: bool,
    memories: u32,
    memory_initial_bytes: u64,
    tables: u32,
    table_initial_elements: u64,
    pooling: bool,
}

#[derive(Serialize)]
struct Imported<'a> {
    name: &'a str,
    /// `nothing`, `inert`, `grant` (it is given), `later-grant` or `unknown`.
    needs: &'static str,
    grant: Option<&'static str>,
}

fn component<'a>(description: &'a Description, digest: &'a str) -> Component<'a> {
    let imported = |import: &'a Import| {
        let (needs, grant) = match import.need {
            Need::Nothing => ("nothing", None),
            Need::Inert => ("inert", None),
            Need::Grant(grant) => ("grant", Some(grant)),
            Need::LaterGrant(grant) => ("later-grant", Some(grant)),
            Need::Unknown => ("unknown", None),
        };
        Imported {
            name: &import.name,
            needs,
            grant,
        }
    };
    Component {
        ok: true,
        digest,
        interface: &description.interface,
        exports: &description.exports,
        imports: description.imports.iter().map(imported).collect(),
        size_bytes: description.size,
        compile_ms: millis(description.compile),
        cached: description.cached,
        memories: description.memories,
        memory_initial_bytes: description.memory_initial,
        tables: description.tables,
        table_initial_elements: description.table_initial,
        pooling: description.pooling,
    }
}

fn component_text(description: &Description, digest: &str, settings: &Settings) -> String {
    let limit = |size: usize| ByteSize(size as u64).show();
    let facts = [
        ("handler", description.interface.clone()),
        ("digest", digest.to_owned()),
        ("size", people_size(description.size)),
        (
            if description.cached {
                "loaded in"
            } else {
                "compiled in"
            },
            format!("{:.1?}", description.compile),
        ),
        (
            "memory",
            format!(
                "{} at the start (limit {})",
                people_size(description.memory_initial),
                limit(settings.limits.memory)
            ),
        ),
        (
            "tables",
            format!(
                "{} elements at the start (limit {})",
                description.table_initial, settings.limits.table_elements
            ),
        ),
        (
            "instances",
            if description.pooling {
                "from a pool"
            } else {
                "mapped one by one"
            }
            .to_owned(),
        ),
    ];
    let mut text = output::table(facts.map(|(name, value)| [name.to_owned(), value]));
    text.push_str("\n\nimports");
    if description.imports.is_empty() {
        text.push_str("  nothing");
    } else {
        let rows = description.imports.iter().map(|import| {
            let need = match import.need {
                Need::Nothing => "always there".to_owned(),
                Need::Inert => "there, but empty".to_owned(),
                Need::Grant(grant) => format!("by the grant `{grant}`"),
                Need::LaterGrant(grant) => format!("needs the grant `{grant}`"),
                Need::Unknown => "unknown to this host".to_owned(),
            };
            [format!("  {}", import.name), need]
        });
        text.push('\n');
        text.push_str(&output::table(rows));
    }
    text
}

/// A size that people can read, with one decimal.
pub(super) fn people_size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
