//! What a guest takes and never gives back, as far as the host lets it. Each returns how much that was, and, if
//! something was refused, how.

use std::mem::forget;

use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::filesystem::{preopens, types::Descriptor};
use wasip2::http::outgoing_handler;
use wasip2::http::types as http;
use wasip2::io::poll::poll;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::IpAddressFamily;
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

/// Ask for `count` names below this one, all at once, and wait for `ms` milliseconds. How many were answered.
pub fn lookups(count: usize, below: &str, ms: u64) -> usize {
    let network = instance_network();
    let ask = |n: usize| resolve_addresses(&network, &format!("n{n}.{below}"));
    let lookups: Vec<_> = (0..count).filter_map(|n| ask(n).ok()).collect();
    let mut waiting: Vec<_> = lookups.iter().map(|lookup| lookup.subscribe()).collect();
    waiting.push(subscribe_duration(ms * 1_000_000));
    let end = waiting.len() - 1;
    loop {
        let ready = poll(&waiting.iter().collect::<Vec<_>>());
        if ready.iter().any(|at| *at as usize == end) || ready.len() == end {
            break;
        }
    }
    let answers = lookups.iter().map(|lookup| lookup.resolve_next_address());
    answers.filter(Result::is_ok).count()
}

/// Sockets, not connected.
pub fn sockets(count: usize) -> String {
    taken(count, |_| {
        create_tcp_socket(IpAddressFamily::Ipv4).map(forget)
    })
}

/// Streams of the entries of the first directory, of which one is read.
pub fn directories(count: usize) -> String {
    let root: Descriptor = preopens::get_directories().swap_remove(0).0;
    let taken = taken(count, |_| {
        let entries = root.read_directory()?;
        let read = entries.read_directory_entry().map(drop);
        forget(entries);
        read
    });
    forget(root);
    taken
}

/// `count` `fields`, each with `headers` short headers.
pub fn fields(count: usize, headers: usize) -> String {
    taken(count, |_| {
        let fields = http::Fields::new();
        let filled = (0..headers).try_for_each(|n| fields.append(&format!("{n:x}"), b""));
        forget(fields);
        filled
    })
}

/// The headers of a response, copied `count` times; each copy is changed.
pub fn copies(count: usize, scheme: &str, authority: &str, path: &str) -> String {
    let response = response(standard_http::request("GET", scheme, authority, path, &[]));
    let headers = match &response {
        Ok(response) => response.headers(),
        Err(error) => return error.clone(),
    };
    let taken = taken(count, |_| {
        let copy = headers.clone();
        let changed = copy.append("x", b"");
        forget(copy);
        changed
    });
    forget((headers, response));
    taken
}

/// Requests with a path of `path` bytes, not sent.
pub fn requests(count: usize, path: usize) -> String {
    let path = format!("/{}", "p".repeat(path));
    taken(count, |_| {
        let request = http::OutgoingRequest::new(http::Fields::new());
        let set = request.set_path_with_query(Some(&path));
        forget(request);
        set
    })
}

/// Responses whose bodies are not read.
pub fn unread(count: usize, scheme: &str, authority: &str, path: &str) -> String {
    taken(count, |_| {
        response(standard_http::request("GET", scheme, authority, path, &[])).map(forget)
    })
}

fn response(request: http::OutgoingRequest) -> Result<http::IncomingResponse, String> {
    let future = outgoing_handler::handle(request, None).map_err(|error| format!("{error:?}"))?;
    future.subscribe().block();
    let response = future
        .get()
        .expect("it is there")
        .expect("for the first time");
    response.map_err(|error| format!("{error:?}"))
}

fn taken<E: std::fmt::Debug>(count: usize, mut take: impl FnMut(usize) -> Result<(), E>) -> String {
    for n in 0..count {
        if let Err(error) = take(n) {
            return format!("{n}, then {error:?}");
        }
    }
    count.to_string()
}
