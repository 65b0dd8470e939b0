//! `hostler:handler/publisher`: messages that are published with the acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker};

use crate::delivery::effect::Publication;
use crate::delivery::message::Headers;
use crate::sandbox::host::Host;

/// `publisher.outgoing`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Outgoing {
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    #[component(name = "delay-ms")]
    delay_ms: Option<u64>,
}

pub(super) fn link(linker: &mut Linker<Host>, name: &str) -> wasmtime::Result<()> {
    linker.instance(name)?.func_wrap(
        "publish",
        |mut store: StoreContextMut<'_, Host>, (queue, message): (String, Outgoing)| {
            let headers = message.headers.into_iter();
            let headers = headers.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
            let publication = Publication {
                to: Arc::from(queue),
                body: Bytes::from(message.body),
                headers: Headers::new(headers.collect()),
                delay: message.delay_ms.map(Duration::from_millis),
            };
            Ok((store.data_mut().publish(publication),))
        },
    )
}
