//! Sockets: each is a descriptor of this process. `wasi:sockets/ip-name-lookup`, for granted names only. The one of wasmtime asks DNS for any name,
//! which would carry data out.

use std::net::IpAddr;
use std::vec;

use futures_util::future::BoxFuture;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, IpAddressFamily};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket;
use wasmtime_wasi::p2::{DynPollable, Network, Pollable, subscribe};
use wasmtime_wasi::sockets::WasiSocketsView;

use super::provider::LookupError;
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, dropped};

/// The version that wasmtime links: the same name replaces its interface.
const NAME: &str = "wasi:sockets/ip-name-lookup@0.2.12";

/// The same for sockets.
const CREATE: &str = "wasi:sockets/tcp-create-socket@0.2.12";

/// `resolve-address-stream`.
enum Lookup {
    Asking(BoxFuture<'static, Result<Vec<IpAddr>, LookupError>>),
    Answered(Result<vec::IntoIter<IpAddr>, ErrorCode>),
}

#[async_trait]
impl Pollable for Lookup {
    async fn ready(&mut self) {
        if let Self::Asking(answer) = self {
            let answer = answer.await;
            *self = Self::Answered(answer.map(Vec::into_iter).map_err(code));
        }
    }
}

fn code(error: LookupError) -> ErrorCode {
    match error {
        LookupError::Denied => ErrorCode::AccessDenied,
        LookupError::Unknown => ErrorCode::NameUnresolvable,
        LookupError::Timeout => ErrorCode::TemporaryResolverFailure,
    }
}

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance(NAME)?;
    let ty = ResourceType::host::<Lookup>();
    interface.resource("resolve-address-stream", ty, dropped::<Lookup>)?;
    interface.func_wrap(
        "resolve-addresses",
        |mut store: Store<'_>, (network, name): (Resource<Network>, String)| {
            let host = store.data_mut();
            // A guest without a network may not ask.
            host.table.get(&network)?;
            let Ok(lookups) = host.scope().and_then(|scope| scope.tcp()) else {
                return Ok((Err(ErrorCode::AccessDenied),));
            };
            let lookup = Lookup::Asking(Box::pin(lookups.resolve(name)));
            Ok((Ok::<_, ErrorCode>(host.table.push(lookup)?),))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: Store<'_>, (stream,): (Resource<Lookup>,)| {
            let next = match store.data_mut().table.get_mut(&stream)? {
                Lookup::Asking(_) => Err(ErrorCode::WouldBlock),
                Lookup::Answered(Ok(addresses)) => Ok(addresses.next().map(IpAddress::from)),
                Lookup::Answered(Err(code)) => Err(*code),
            };
            Ok((next,))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: Store<'_>, (stream,): (Resource<Lookup>,)| {
            let pollable: Resource<DynPollable> = subscribe(&mut store.data_mut().table, stream)?;
            Ok((pollable,))
        },
    )?;
    linker.instance(CREATE)?.func_wrap(
        "create-tcp-socket",
        |mut store: Store<'_>, (family,): (IpAddressFamily,)| {
            let host = store.data_mut();
            host.room_for_descriptor()?;
            let created = tcp_create_socket::Host::create_tcp_socket(&mut host.sockets(), family);
            Ok((match created {
                Ok(socket) => Ok(socket),
                Err(error) => Err(error.downcast()?),
            },))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
