//! `fermyon:spin/inbound-redis`: the Redis trigger of Spin, as its SDK had it before version 6.

use wasmtime::Store;
use wasmtime::component::{ComponentType, Lift, TypedFunc};

/// `inbound-redis.handle-message`: it gets the body, and nothing else.
pub(in crate::sandbox) type HandleMessage = TypedFunc<(&'static [u8],), (Result<(), Error>,)>;

/// `redis-types.error`. It carries no text: the SDK writes that to stderr.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the derived code makes them")]
pub(in crate::sandbox) enum Error {
    #[component(name = "success")]
    Success,
    #[component(name = "error")]
    Error,
}

pub(in crate::sandbox) async fn call<T: Send>(
    function: HandleMessage,
    store: &mut Store<T>,
    body: &[u8],
) -> wasmtime::Result<Result<(), Option<String>>> {
    let (answer,) = function.call_async(store, (body,)).await?;
    Ok(answer.map_err(|_| None))
}
