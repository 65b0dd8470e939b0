use hostler_handler::{Error, handler};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Event {
    Paid { cents: u64 },
    Shipped,
}

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let event: Event = serde_json::from_str(r#"{"kind":"paid","cents":7}"#)?;
    let same: Event = serde_json::from_str(&serde_json::to_string(&event)?)?;
    (same == event && same != Event::Shipped).then_some(()).ok_or_else(|| format!("got {same:?}").into())
}
