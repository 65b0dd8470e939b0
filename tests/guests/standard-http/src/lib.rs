//! Requests by `wasi:http`, as a guest of any world makes them.

use wasip2::http::{outgoing_handler, types};
use wasip2::io::streams::StreamError;

/// The action `call:METHOD|SCHEME|AUTHORITY|PATH|OPTION...` of guests whose world has no answer but an error.
///
/// # Panics
///
/// If the status does not begin with 2, so that the message comes again.
pub fn act(name: &str, argument: &str) -> bool {
    if name == "call" {
        let answer = call(argument.split('|'));
        assert!(answer.starts_with('2'), "{argument}: {answer}");
    }
    name == "call"
}

/// A request without a body.
///
/// # Panics
///
/// If the host refuses a part of it.
pub fn request(
    method: &str,
    scheme: &str,
    authority: &str,
    path: &str,
    headers: &[(String, Vec<u8>)],
) -> types::OutgoingRequest {
    let headers = types::Fields::from_list(headers).expect("the headers are allowed");
    let request = types::OutgoingRequest::new(headers);
    let method = match method {
        "GET" => types::Method::Get,
        "POST" => types::Method::Post,
        other => types::Method::Other(other.to_owned()),
    };
    request.set_method(&method).expect("the method is valid");
    let scheme = match scheme {
        "http" => types::Scheme::Http,
        _ => types::Scheme::Https,
    };
    request
        .set_scheme(Some(&scheme))
        .expect("the scheme is valid");
    request
        .set_authority(Some(authority))
        .expect("the authority is valid");
    if request.set_path_with_query(Some(path)).is_err() {
        panic!("the path is refused");
    }
    request
}

/// Send `METHOD|SCHEME|AUTHORITY|PATH|OPTION...`, in its parts, and wait for the answer: `STATUS BODY`, or the error. Options:
/// `h=NAME=VALUE`, `b=BODY`, `len` (the length of the body instead of it).
///
/// # Panics
///
/// If the host refuses a part of the request.
pub fn call<'a>(mut parts: impl Iterator<Item = &'a str>) -> String {
    let mut next = || parts.next().unwrap_or_default();
    let (method, scheme, authority, path) = (next(), next(), next(), next());
    let (mut headers, mut body, mut only_length) = (Vec::new(), None, false);
    for option in parts {
        match option.split_once('=').unwrap_or((option, "")) {
            ("h", header) => {
                let (name, value) = header.split_once('=').unwrap_or((header, ""));
                headers.push((name.to_owned(), value.as_bytes().to_vec()));
            }
            ("b", text) => body = Some(text.as_bytes().to_vec()),
            ("len", _) => only_length = true,
            other => panic!("no option {other:?}"),
        }
    }
    if let Err(error) = types::Fields::from_list(&headers) {
        return format!("{error:?}");
    }
    let request = request(method, scheme, authority, path, &headers);
    let outgoing = request.body().expect("a request has a body");
    let response = match outgoing_handler::handle(request, None) {
        Ok(response) => response,
        Err(error) => return format!("{error:?}"),
    };
    if let Some(body) = body {
        let stream = outgoing.write().expect("a body has a stream");
        stream
            .blocking_write_and_flush(&body)
            .expect("the body is written");
    }
    types::OutgoingBody::finish(outgoing, None).expect("the body ends");
    response.subscribe().block();
    let response = response
        .get()
        .expect("it is there")
        .expect("for the first time");
    let response = match response {
        Ok(response) => response,
        Err(error) => return format!("{error:?}"),
    };
    let incoming = response.consume().expect("a response has a body");
    let stream = incoming.stream().expect("a body has a stream");
    let mut read = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(bytes) => read.extend(bytes),
            Err(StreamError::Closed) => break,
            Err(error) => return format!("{} broken {} {error:?}", response.status(), read.len()),
        }
    }
    match only_length {
        true => format!("{} {}", response.status(), read.len()),
        false => format!("{} {}", response.status(), String::from_utf8_lossy(&read)),
    }
}
