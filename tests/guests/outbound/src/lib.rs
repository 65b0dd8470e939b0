//! As `scripted`, and actions that reach outside the sandbox. Those that answer report by a drop
//! reason. Arguments are separated by `|`.
//!
//! - `fetch:METHOD|URL|OPTION...` answers `STATUS BODY`, or the error. Options: `h=NAME=VALUE`, `b=BODY`,
//!   `t=MILLISECONDS`, `len` (the length of the body instead of it), `show=HEADER` (its value instead).
//! - `send:...`: the same without an answer. `need:...`: asks for another attempt unless the status begins with 2. `flood:N|METHOD|URL`: N of them; answers how many ended how.
//! - `wasi:METHOD|SCHEME|AUTHORITY|PATH|OPTION...`: the same by `wasi:http`; options `h`, `b`, `len`.
//! - `wasi-leak:N|SCHEME|AUTHORITY|PATH`: starts N requests and never looks at them.
//! - `secret:NAME`.
//! - `tcp:HOST|PORT|TEXT`: connects, writes a line, answers the line that comes back.
//! - `lookup:HOST`, `listen`, `udp:HOST|PORT`.
//! - `log:LEVEL|TEXT`: by `wasi:logging`.
//! - `hold:WHAT|...` takes what it never gives back, and writes how much that was to stdout: `lookups|N|BELOW|MS`,
//!   `sockets|N`, `directories|N`, `fields|N|HEADERS`, `copies|N|SCHEME|AUTHORITY|PATH`, `requests|N|BYTES`,
//!   `unread|N|SCHEME|AUTHORITY|PATH`.

mod hoards;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use script::{Message, Outcome, Step};
use wasip2::http::outgoing_handler;

wit_bindgen::generate!({
    path: ["../../../wit", "wit"],
    world: "tests:outbound/outbound",
    generate_all,
});

use crate::hostler::handler::http::{self, Request};
use crate::hostler::handler::secrets;
use crate::wasi::logging::logging;

struct Outbound;

fn say(text: String) -> Option<Step> {
    Some(Step::Answer(Outcome::Drop(Some(text))))
}

impl script::Guest for Outbound {
    fn handle(message: Message) -> Outcome {
        script::handle(&message, &|name, argument| {
            let mut parts = argument.split('|');
            match name {
                "fetch" => say(fetch(parts)),
                "send" => {
                    fetch(parts);
                    Some(Step::Continue)
                }
                "need" => match fetch(parts).starts_with('2') {
                    true => Some(Step::Continue),
                    false => Some(Step::Answer(Outcome::NackRequeue(None))),
                },
                "flood" => {
                    let count: usize = parts.next()?.parse().ok()?;
                    say(flood(count, &parts.collect::<Vec<_>>()))
                }
                "wasi" => say(standard_http::call(parts)),
                "wasi-leak" => {
                    let count: usize = parts.next()?.parse().ok()?;
                    let target: Vec<_> = parts.collect();
                    for _ in 0..count {
                        let request =
                            standard_http::request("GET", target[0], target[1], target[2], &[]);
                        std::mem::forget(outgoing_handler::handle(request, None));
                    }
                    Some(Step::Continue)
                }
                "secret" => say(format!("{:?}", secrets::get(argument))),
                "tcp" => say(tcp(
                    parts.next()?,
                    parts.next()?,
                    parts.next().unwrap_or("hello"),
                )),
                "lookup" => say(lookup(argument)),
                "listen" => say(match TcpListener::bind("0.0.0.0:0") {
                    Ok(_) => "listening".to_owned(),
                    Err(error) => format!("{:?}", error.kind()),
                }),
                "udp" => say(udp(parts.next()?, parts.next()?)),
                "log" => {
                    let level = match parts.next()? {
                        "trace" => logging::Level::Trace,
                        "debug" => logging::Level::Debug,
                        "info" => logging::Level::Info,
                        "warn" => logging::Level::Warn,
                        "error" => logging::Level::Error,
                        _ => logging::Level::Critical,
                    };
                    logging::log(level, "checkout", parts.next()?);
                    Some(Step::Continue)
                }
                "hold" => {
                    println!("held {}", hold(&parts.collect::<Vec<_>>()));
                    Some(Step::Continue)
                }
                _ => None,
            }
        })
    }
}

fn hold(what: &[&str]) -> String {
    let number = |at: usize| what[at].parse::<usize>().expect("a number");
    match what[0] {
        "lookups" => hoards::lookups(number(1), what[2], number(3) as u64).to_string(),
        "sockets" => hoards::sockets(number(1)),
        "directories" => hoards::directories(number(1)),
        "fields" => hoards::fields(number(1), number(2)),
        "copies" => hoards::copies(number(1), what[2], what[3], what[4]),
        "requests" => hoards::requests(number(1), number(2)),
        "unread" => hoards::unread(number(1), what[2], what[3], what[4]),
        other => panic!("nothing to hold: {other}"),
    }
}

fn fetch<'a>(mut parts: impl Iterator<Item = &'a str>) -> String {
    let mut request = Request {
        method: parts.next().unwrap_or_default().to_owned(),
        url: parts.next().unwrap_or_default().to_owned(),
        headers: Vec::new(),
        body: None,
        timeout_ms: None,
    };
    let (mut only_length, mut shown) = (false, None);
    for option in parts {
        match option.split_once('=').unwrap_or((option, "")) {
            ("h", header) => {
                let (name, value) = header.split_once('=').unwrap_or((header, ""));
                request
                    .headers
                    .push((name.to_owned(), value.as_bytes().to_vec()));
            }
            ("b", body) => request.body = Some(body.as_bytes().to_vec()),
            ("t", ms) => request.timeout_ms = ms.parse().ok(),
            ("len", _) => only_length = true,
            ("show", name) => shown = Some(name.to_owned()),
            other => panic!("no option {other:?}"),
        }
    }
    match http::fetch(&request) {
        Ok(response) if only_length => format!("{} {}", response.status, response.body.len()),
        Ok(response) => match shown {
            Some(name) => {
                let header = response.headers.iter().find(|(n, _)| *n == name);
                format!(
                    "{:?}",
                    header.map(|(_, value)| String::from_utf8_lossy(value))
                )
            }
            None => format!(
                "{} {}",
                response.status,
                String::from_utf8_lossy(&response.body)
            ),
        },
        Err(error) => format!("{error:?}"),
    }
}

fn flood(count: usize, request: &[&str]) -> String {
    let mut ends: Vec<(String, usize)> = Vec::new();
    for _ in 0..count {
        let end = fetch(request.iter().copied());
        match ends.iter_mut().find(|(known, _)| *known == end) {
            Some((_, n)) => *n += 1,
            None => ends.push((end, 1)),
        }
    }
    format!("{ends:?}")
}

fn tcp(host: &str, port: &str, text: &str) -> String {
    let port: u16 = port.parse().expect("a port");
    let mut stream = match TcpStream::connect((host, port)) {
        Ok(stream) => stream,
        Err(error) => return format!("{:?}", error.kind()),
    };
    writeln!(stream, "{text}").expect("the line is written");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("a line comes back");
    line.trim_end().to_owned()
}

fn lookup(host: &str) -> String {
    match (host, 0).to_socket_addrs() {
        Ok(addresses) => format!("{:?}", addresses.map(|a| a.ip()).collect::<Vec<_>>()),
        Err(_) => "no address".to_owned(),
    }
}

fn udp(host: &str, port: &str) -> String {
    let socket = match UdpSocket::bind("0.0.0.0:0") {
        Ok(socket) => socket,
        Err(error) => return format!("{:?}", error.kind()),
    };
    match socket.send_to(b"x", format!("{host}:{port}")) {
        Ok(_) => "sent".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

script::export!(Outbound);
