//! From the schedules of a configuration to those that a host writes and publishes.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::{Config, Sources};
use crate::host::Error;
use crate::redis::connection::Connector;
use crate::schedule::{BODY_MAX, Defined, Definition, Keeper, OfFile, Overlap};
use crate::telemetry::metrics::Metrics;

/// The source of schedules that no file has.
const FLAGS: &str = "flags";

/// Publishes the ticks of the queue of this configuration; `None` = a queue of this kind has none. Reads the bodies.
///
/// # Errors
/// A body cannot be read.
pub(super) fn keeper(
    config: &Config,
    sources: &Sources,
    connector: &Connector,
    metrics: &Arc<Metrics>,
) -> Result<Option<Keeper>, Error> {
    let Some(destination) = config.schedule_destination() else {
        return Ok(None);
    };
    let file = match sources.file.as_deref() {
        None if config.schedules.is_empty() => None,
        file => Some(of_file(config, file)?),
    };
    let link = connector.link("schedules").of(destination.name());
    let keeper = Keeper::new(Arc::new(link), destination, file, Arc::clone(metrics));
    Ok(Some(keeper))
}

fn of_file(config: &Config, file: Option<&Path>) -> Result<OfFile, Error> {
    // The name alone: each release may have a folder of its own. The groups of a stream may have files of the same name.
    let name = file
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy());
    let name = name.as_deref().unwrap_or(FLAGS);
    let group = config.queue.group();
    let source = group.map_or_else(|| name.to_owned(), |group| format!("{name} ({group})"));
    let defined = config.schedules.iter().map(|rule| {
        let written = &rule.written;
        let body = match (&written.body, &written.body_file) {
            (Some(text), _) => Bytes::from(text.clone()),
            (None, Some(path)) => read(path)?,
            (None, None) => Bytes::new(),
        };
        if body.len() > BODY_MAX {
            return Err(Error::Schedule(format!(
                "the body of `{}` has more than {BODY_MAX} bytes",
                rule.name
            )));
        }
        let definition = Definition {
            cron: written.cron.clone(),
            zone: written.zone().to_owned(),
            headers: written.headers.0.clone(),
            catch_up: written.catch_up.to_string(),
            skip_in: group
                .filter(|_| written.overlap == Overlap::Skip)
                .map(str::to_owned),
            ..Definition::default()
        };
        Ok(Defined::new(&rule.name, definition, body, &source))
    });
    Ok(OfFile {
        defined: defined.collect::<Result<_, Error>>()?,
        source: source.clone(),
    })
}

fn read(path: &Path) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(BODY_MAX as u64 + 1).read_to_end(&mut body));
    match read {
        Ok(_) => Ok(body.into()),
        Err(error) => Err(Error::Schedule(format!("{}: {error}", path.display()))),
    }
}
