//! What a list looks like from outside: the data of `hostler inspect`. Changes nothing.

use crate::queue::inspect::{ConsumerReport, Report};
use crate::queue::simple_list;
use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::wire::keys;

/// Look at a list.
///
/// # Errors
/// What Redis refuses.
pub async fn report(
    link: &Link,
    key: &str,
    recovery: Option<&str>,
    dead_letter: Option<&str>,
) -> Result<Report, Error> {
    let script = Script::ListReport;
    let (retry, delayed, instances) = (keys::retry(key), keys::delayed(key), keys::instances(key));
    let mut names = vec![key, &retry, &delayed, &instances];
    names.extend(recovery);
    let mut call = script.on(&names);
    call.arg(keys::processing(key, ""));
    let reply = script::run(link, script, &call).await?;
    let command = script.name();
    let [length, delayed, next, oldest, instances] = reply::tuple(command, reply)?;
    let known = |value| reply::integer(command, value).map(|ms| u64::try_from(ms).ok());
    let mut held = 0;
    let mut reports = Vec::new();
    for instance in reply::array(command, instances)? {
        let [name, pending, idle] = reply::tuple(command, instance)?;
        let report = ConsumerReport {
            name: String::from_utf8_lossy(&reply::bytes(command, name)?).into_owned(),
            pending: reply::count(command, &pending)?,
            idle_ms: reply::count(command, &idle)?,
        };
        held += report.pending;
        reports.push(report);
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    let delayed = reply::count(command, &delayed)?;
    let length = reply::count(command, &length)?;
    Ok(Report {
        read: None,
        length,
        lag: Some(length),
        unread: length > 0,
        delayed,
        next_due_ms: known(&next)?,
        pending: held + delayed,
        oldest_pending_ms: known(&oldest)?,
        dead_letters: match dead_letter {
            Some(key) => Some(simple_list::length(link, key).await?),
            None => None,
        },
        consumers: reports,
        groups: Vec::new(),
    })
}
