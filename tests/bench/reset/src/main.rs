//! Compares an instance that is reset after each call with a fresh one and with a reused one.
//!
//! `reset COMPONENT` has these options:
//! - `--body-file FILE`: the body of the message; `--pad BYTES`: make it so much longer.
//! - `--rounds N`: how often each way is measured.
//! - `--block-bits N`: the size of a block; `--drop-grown`: do not restore an instance whose memory has grown.
//! - `--against COMPONENT`: compare fresh instances of two components instead.
//! - `--parts`: measure the parts of a fresh call instead.
//! - `--check`: prove that nothing of a call remains instead.
//! - `--write FILE`: write the component that can be reset instead.

use reset::check::{bodies, check, padded};
use reset::instrument::{Options, instrumented};
use reset::measure::{Instances, Way, measure};
use reset::merged;
use reset::run::{Calls, Handler, Message, component};
use tokio::runtime::Runtime;
use wasmtime::error::Context;
use wasmtime::{Result, bail, ensure};

const BODY: &str = r#"{"id":"o-1","amount":42.5,"currency":"EUR","status":"paid","items":["espresso beans 1 kg"],"gift":false}"#;

struct Arguments {
    component: String,
    /// Is compared as a fresh instance.
    against: Option<String>,
    /// Where the component is written that can be reset.
    write: Option<String>,
    body: Vec<u8>,
    rounds: u32,
    options: Options,
    checks: bool,
    /// The parts of a fresh call are measured.
    parts: bool,
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let Some(file) = &arguments.write {
        std::fs::write(file, arguments.resettable()?)?;
        return Ok(());
    }
    match arguments.checks {
        true => runtime.block_on(prove(&arguments)),
        false => compare(&runtime, &arguments),
    }
}

impl Arguments {
    fn resettable(&self) -> Result<Vec<u8>> {
        Ok(instrumented(
            &merged(component(&self.component)?),
            self.options,
        )?)
    }
}

fn arguments() -> Result<Arguments> {
    let mut arguments = Arguments {
        component: String::new(),
        against: None,
        write: None,
        body: BODY.into(),
        rounds: 400,
        options: Options::default(),
        checks: false,
        parts: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--check" => {
                arguments.checks = true;
                continue;
            }
            "--parts" => {
                arguments.parts = true;
                continue;
            }
            "--drop-grown" => {
                arguments.options.keeps_growth = false;
                continue;
            }
            _ => {}
        }
        if !argument.starts_with("--") {
            arguments.component = argument;
            continue;
        }
        let value = given
            .next()
            .with_context(|| format!("{argument} of what?"))?;
        match argument.as_str() {
            "--body-file" => arguments.body = std::fs::read(value)?,
            "--pad" => arguments.body = padded(&arguments.body, value.parse()?),
            "--rounds" => arguments.rounds = value.parse()?,
            "--block-bits" => arguments.options.block_bits = value.parse()?,
            "--write" => arguments.write = Some(value),
            "--against" => arguments.against = Some(value),
            _ => bail!("{argument} is unknown"),
        }
    }
    ensure!(!arguments.component.is_empty(), "which component?");
    ensure!(
        (6..=16).contains(&arguments.options.block_bits),
        "blocks have 6 to 16 bits"
    );
    Ok(arguments)
}

/// Prove that nothing of a call remains.
async fn prove(arguments: &Arguments) -> Result<()> {
    let found = check(&arguments.resettable()?, &bodies(&arguments.body)).await?;
    let (restored, ended) = (found.restored, found.ended);
    println!("{restored} calls restored; after {ended}, the instance had to be dropped");
    ensure!(
        found.different == 0,
        "{} calls left differences",
        found.different
    );
    Ok(())
}

/// Compare the ways to call a handler.
fn compare(runtime: &Runtime, arguments: &Arguments) -> Result<()> {
    let plain = merged(component(&arguments.component)?);
    let kept = Instances::Kept { drops: false };
    let mut ways = Vec::new();
    let mut add = |name: &str, component: &[u8], calls, instances| -> Result<()> {
        ways.push(Way {
            name: name.to_owned(),
            handler: Handler::new(component, calls)?,
            instances,
        });
        Ok(())
    };
    add("fresh", &plain, Calls::Fiber, Instances::Fresh)?;
    add("reused", &plain, Calls::Fiber, kept)?;
    if arguments.parts {
        add("made, not called", &plain, Calls::Fiber, Instances::Unused)?;
        add("a store alone", &plain, Calls::Fiber, Instances::None)?;
    } else if let Some(against) = &arguments.against {
        let against = merged(component(against)?);
        add(
            "fresh, the other component",
            &against,
            Calls::Fiber,
            Instances::Fresh,
        )?;
    } else {
        let marks = Options {
            resets: false,
            ..arguments.options
        };
        let marks = instrumented(&plain, marks)?;
        let resets = instrumented(&plain, arguments.options)?;
        let reset = Instances::Kept { drops: true };
        println!("{} bytes; instrumented: {}", plain.len(), resets.len());
        add("reused, with marks", &marks, Calls::Fiber, kept)?;
        add("reset", &resets, Calls::Fiber, reset)?;
        add("fresh, no fiber", &plain, Calls::Direct, Instances::Fresh)?;
        add("reused, no fiber", &plain, Calls::Direct, kept)?;
        add("reset, no fiber", &resets, Calls::Direct, reset)?;
    }
    let message = Message::of(&arguments.body);
    let measured = measure(runtime, &ways, &message, arguments.rounds)?;
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>9}",
        "ns per call", "median", "25 %", "75 %", "instances"
    );
    for (way, m) in ways.iter().zip(&measured) {
        let Way { name, .. } = way;
        println!(
            "{name:<28} {:>9.0} {:>9.0} {:>9.0} {:>9.3}",
            m.median, m.low, m.high, m.made
        );
    }
    Ok(())
}
