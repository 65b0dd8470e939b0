//! `hostler new`: a project for a handler, ready to build and to test.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::cli::{Exit, Failure, Variables, output};
use crate::workbench::new::{Choice, Engine, Language, Part, Project, World, checked_name};

/// Write a project for a handler: source, tests, WIT, build file, configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler new --lang rust billing
  hostler new --lang python parcels && cd parcels && make
  hostler new --lang go shop --with http,publish,key-value
  hostler new --lang js parcels --minimal
  hostler new --lang ts parcels --engine quickjs
  hostler new --lang c invoices --world command

The project is a small handler for orders with tests. It builds at once: change
it into your own. README.md names the tools that it needs, AGENTS.md the
commands for a coding agent. cases.toml is for `hostler test`, hostler.toml for
`hostler dev` and `hostler run`. Both name their JSON Schemas, for editors.

In Rust, JavaScript, TypeScript, Python and Go the handler uses the SDK of
the language, which the project carries in a folder of its own: a payload with
a type, return = ack, an error = again. With `--raw` it has the bindings of the
WIT instead, as handlers in C, C++ and Zig do.

With `--with` the handler charges an order by HTTP, publishes an invoice, keeps
a total for each customer, or reads a secret. hostler.toml has the grants.
With `--minimal` it acks every message, and there is nothing to remove.

Worlds other than `hostler` have a small project: `command` in Rust, Go, C, C++
and Zig, `spin` and `wasmcloud` in Rust.")]
pub(super) struct Args {
    /// The language
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,

    /// More actions of the handler, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    with: Vec<Part>,

    /// A handler that acks every message, instead of the orders
    #[arg(long, conflicts_with = "with")]
    minimal: bool,

    /// The bindings of the WIT alone, without the SDK of the language
    #[arg(long, conflicts_with = "minimal")]
    raw: bool,

    /// The engine for JavaScript or TypeScript [default: starlingmonkey]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<Engine>,

    /// The kind of host that the handler is made for
    #[arg(long, value_name = "WORLD", default_value = "hostler")]
    world: World,

    /// The name of the project and of its new folder: small letters, digits and `-`
    #[arg(value_name = "NAME", value_parser = checked_name)]
    name: String,
}

pub(super) fn run(args: Args, _: Variables) -> Result<Exit, Failure> {
    if args.engine.is_some() && !matches!(args.lang, Language::Js | Language::Ts) {
        let what = "`--engine` is for JavaScript and TypeScript";
        return Err(Failure::new(Exit::Usage, what).hint("leave it out"));
    }
    let project = Project {
        name: args.name,
        lang: args.lang,
        world: args.world,
        with: args.with,
        minimal: args.minimal,
        raw: args.raw || args.engine == Some(Engine::QuickJs),
    };
    for path in project.write()? {
        output::line(&path.display().to_string())?;
    }
    output::people(&format!("\nNext:\n  {}\n", project.next().join("\n  ")));
    Ok(Exit::Ok)
}

macro_rules! values {
    ($($name:ident)*) => {
        $(impl ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                Self::ALL
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(self.word()).help(self.about()))
            }
        })*
    };
}

values!(Language World Engine Part);
