//! Cancelling messages of a listed queue: what its hosts say about it.

use std::sync::Arc;

use crate::delivery::policy::Reason;
use crate::policies::{Policies, effective};
use crate::publish::cancel::{Canceller, Kept};
use crate::publish::{Destination, List, Stream};
use crate::redis::connection::Connector;
use crate::registry::{Listed, ListedKind};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;

pub use crate::publish::cancel::{CancelError, Verdict};

/// The live rules that say whether cancelled messages are kept, and how many.
const ROUTES: &str = "dead_letter.routes";
const MAX_LEN: &str = "dead_letter.max_len";
const ON_FULL: &str = "dead_letter.on_full";

/// Cancels messages of this queue, in this group of a stream or in all groups. They are kept where the rules of its hosts route
/// `cancelled`; without hosts, where its policies do.
///
/// # Errors
/// [`CancelError`]: the queue is a channel, the rules cannot be read, or the route leads into another slot.
pub async fn canceller(
    connector: &Connector,
    queue: &Listed,
    group: Option<&str>,
) -> Result<Canceller, CancelError> {
    let name = queue.queue.as_str();
    let to = match queue.kind {
        ListedKind::Stream => Stream::new(name).into(),
        ListedKind::List => List::new(name).reliable().into(),
        ListedKind::SimpleList => Destination::list(name),
        ListedKind::Channel => return Err(CancelError::Channel),
    };
    let rules = match queue.kind {
        // It has no dead letters.
        ListedKind::SimpleList => Vec::new(),
        _ => rules(connector, queue).await?,
    };
    let canceller = Canceller::new(connector, to)?;
    let canceller = canceller.group(group.map(str::to_owned));
    canceller
        .recovery(queue.recovery.clone())
        .kept(kept(&rules))
}

/// The rules in force: setting and value.
async fn rules(
    connector: &Connector,
    queue: &Listed,
) -> Result<Vec<(String, String)>, CancelError> {
    let link = Arc::new(connector.link("cancel").of(&queue.queue));
    let hosts = HostSeen::parse_all(&Store::sharing(link, &queue.queue).hosts().await?);
    let mut telling = hosts.iter().filter(|host| !host.rules.is_empty());
    if let Some(host) = telling.next() {
        let rules = host.rules.iter();
        return Ok(rules
            .filter_map(|rule| Some((rule.setting.clone(), rule.value.clone()?)))
            .collect());
    }
    let policies = Policies::new(connector.link("policies"));
    let (stored, _) = policies.of_queue(&queue.queue).await.stored()?;
    let rules = effective(&stored).into_iter();
    Ok(rules
        .map(|stored| (stored.setting.clone(), stored.text.clone()))
        .collect())
}

fn kept(rules: &[(String, String)]) -> Option<Kept> {
    let value = |setting: &str| {
        let mut rules = rules.iter();
        rules
            .find(|(name, _)| name == setting)
            .map(|(_, text)| text.as_str())
    };
    let mut routes = value(ROUTES)?.split(',').filter_map(|route| {
        let (reason, key) = route.split_once('=')?;
        (reason.trim() == Reason::Cancelled.label()).then_some(key.trim())
    });
    let key = routes.next().filter(|key| *key != "discard")?;
    Some(Kept {
        key: key.to_owned(),
        max_len: value(MAX_LEN).and_then(|text| text.parse().ok()),
        stops: value(ON_FULL) == Some("stop"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_message_is_kept_only_where_a_route_says_so() {
        let rules = |routes: &str| {
            let rule = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            [
                rule(ROUTES, routes),
                rule(MAX_LEN, "5"),
                rule(ON_FULL, "stop"),
            ]
        };
        assert_eq!(kept(&[]), None);
        assert_eq!(
            kept(&rules("dropped=orders:dropped, cancelled=discard")),
            None
        );
        let expected = Kept {
            key: "orders:cancelled".to_owned(),
            max_len: Some(5),
            stops: true,
        };
        let routes = "dropped=discard, cancelled = orders:cancelled";
        assert_eq!(kept(&rules(routes)), Some(expected));
    }
}
