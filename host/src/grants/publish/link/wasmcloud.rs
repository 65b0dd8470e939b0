//! `wasmcloud:messaging/consumer`: messages that are published with the acknowledgement. `request` is refused
//! when the component is loaded.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::{ComponentType, Lift, Linker};

use crate::delivery::effect::Publication;
use crate::delivery::message::Headers;
use crate::grants::publish::{WASMCLOUD_CONSUMER, WASMCLOUD_VERSION};
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::Store;
use crate::sandbox::worlds::wasmcloud::REPLY_TO;

/// `types.broker-message`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Message {
    subject: String,
    body: Vec<u8>,
    #[component(name = "reply-to")]
    reply_to: Option<String>,
}

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{WASMCLOUD_CONSUMER}@{WASMCLOUD_VERSION}"))?
        .func_wrap("publish", |mut store: Store<'_>, (message,): (Message,)| {
            let mut headers = Headers::default();
            if let Some(reply_to) = message.reply_to {
                headers.push(REPLY_TO, reply_to);
            }
            let publication = Publication {
                to: Arc::from(message.subject),
                body: Bytes::from(message.body),
                headers,
                delay: None,
                trace: None,
            };
            Ok((store.data_mut().publish(0, publication),))
        })
}
