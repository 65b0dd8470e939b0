//! `hostler:handler/publisher` and `batch-effects`: messages that are published with the acknowledgement.

mod wasmcloud;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime::component::{ComponentType, Lift, Linker, LinkerInstance};

use crate::delivery::effect::Publication;
use crate::delivery::message::Headers;
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::Store;

/// `publisher.outgoing`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Outgoing {
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    #[component(name = "delay-ms")]
    delay_ms: Option<u64>,
}

impl Outgoing {
    fn to(self, queue: String) -> Publication {
        let headers = self.headers.into_iter();
        let headers = headers.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
        Publication {
            to: Arc::from(queue),
            body: Bytes::from(self.body),
            headers: Headers::new(headers.collect()),
            delay: self.delay_ms.map(Duration::from_millis),
            trace: None,
        }
    }
}

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasmcloud::link(linker)?;
    linker
        .instance("hostler:handler/publisher@1.0.0")?
        .func_wrap(
            "publish",
            |mut store: Store<'_>, (queue, message): (String, Outgoing)| {
                Ok((store.data_mut().publish(0, message.to(queue)),))
            },
        )
}

/// The call of `batch-effects`, which names the message.
pub(in crate::grants) fn link_of_batches(
    interface: &mut LinkerInstance<'_, Host>,
) -> wasmtime::Result<()> {
    interface.func_wrap(
        "publish",
        |mut store: Store<'_>, (index, queue, message): (u32, String, Outgoing)| {
            Ok((store.data_mut().publish(index, message.to(queue)),))
        },
    )
}
