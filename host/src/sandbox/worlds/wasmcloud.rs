//! `wasmcloud:messaging/handler@0.2.0`: the messages of wasmCloud.

use wasmtime::Store;
use wasmtime::component::{ComponentType, Lower, TypedFunc};

/// `handler.handle-message`.
pub(in crate::sandbox) type HandleMessage =
    TypedFunc<(&'static Message<'static>,), (Result<(), String>,)>;

/// The header that says where an answer is expected.
pub(crate) const REPLY_TO: &str = "reply-to";

/// `types.broker-message`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(in crate::sandbox) struct Message<'a> {
    subject: &'a str,
    body: &'a [u8],
    #[component(name = "reply-to")]
    reply_to: Option<&'a str>,
}

/// The subject is the name of the queue.
pub(in crate::sandbox) async fn call<T: Send>(
    function: HandleMessage,
    store: &mut Store<T>,
    queue: &str,
    body: &[u8],
    headers: &[(&str, &str)],
) -> wasmtime::Result<Result<(), Option<String>>> {
    let reply_to = headers.iter().find(|(name, _)| *name == REPLY_TO);
    let message = Message {
        subject: queue,
        body,
        reply_to: reply_to.map(|(_, value)| *value),
    };
    let (answer,) = function.call_async(store, (&message,)).await?;
    Ok(answer.map_err(Some))
}
