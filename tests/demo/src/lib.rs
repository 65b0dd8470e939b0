//! A payment server for tests. It charges once for each idempotency key: a repeated call gets the first
//! answer. Without a key it charges for every call. The card of a payment says what happens:
//!
//! | card | the server |
//! |---|---|
//! | `good` | charges it |
//! | `declined` | answers 402 |
//! | `busy` | answers the first call with 503, and charges at the second one |
//! | `lost-answer` | charges it at the first call, and closes the connection without an answer |
//! | `bank-down` | answers every call with 503 |

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest body of a request.
const BODY_MAX: u64 = 64 << 10;
/// The most headers of a request.
const HEADERS_MAX: usize = 100;

/// A call, and what the server did.
#[derive(Clone, Debug)]
pub struct Call {
    /// The idempotency key; empty if the request had no key.
    pub key: String,
    /// The order.
    pub order: String,
    /// What was done.
    pub done: Done,
}

/// What the server did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Done {
    /// The card was charged.
    Charged,
    /// Nothing: the key was charged before. The answer is the one of that time.
    Repeated,
    /// The card was declined.
    Declined,
    /// Nothing: the server could not.
    Unavailable,
    /// Nothing: the request is wrong.
    Refused,
}

/// As the demo reads it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.done, self.order, self.key)
    }
}

/// Serve this listener, in threads that end with the process. Requests need the header `authorization:
/// Bearer CREDENTIAL`. Each call is sent to `told`, before it is answered.
pub fn serve(
    listener: TcpListener,
    credential: &str,
    told: impl Fn(&Call) + Send + Sync + 'static,
) {
    let server = Arc::new(Server {
        authorization: format!("Bearer {credential}"),
        book: Mutex::default(),
        told: Box::new(told),
    });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A connection that breaks is the client's affair.
            std::thread::spawn(move || server.serve(stream).ok());
        }
    });
}

struct Server {
    authorization: String,
    book: Mutex<Book>,
    told: Box<dyn Fn(&Call) + Send + Sync>,
}

/// What the server remembers.
#[derive(Default)]
struct Book {
    charges: usize,
    /// The charge of each key.
    charged: HashMap<String, String>,
    /// The keys that it was busy for.
    busy: HashSet<String>,
}

struct Request {
    line: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader)? {
            let (call, answer) = self.answer(&request);
            (self.told)(&call);
            let Some((status, body)) = answer else {
                return Ok(());
            };
            let length = body.len();
            write!(
                reader.get_mut(),
                "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )?;
        }
        Ok(())
    }

    /// Status and body; `None` = no answer.
    fn answer(&self, request: &Request) -> (Call, Option<(u16, String)>) {
        let header = |name| request.headers.get(name).cloned().unwrap_or_default();
        let payment: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (card, key) = (&payment["card"], header("idempotency-key"));
        let told = |done, answer| {
            let order = payment["order"].as_str().unwrap_or("?").to_owned();
            let key = key.clone();
            (Call { key, order, done }, answer)
        };
        let error = |status, what| Some((status, serde_json::json!({ "error": what }).to_string()));
        if header("authorization") != self.authorization {
            return told(Done::Refused, error(401, "who are you?"));
        }
        if !request.line.starts_with("POST /v1/charges ") || !payment["cents"].is_u64() {
            return told(Done::Refused, error(400, "that is no payment"));
        }
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let charged = |charge: &str| {
            let body = serde_json::json!({ "charge": charge });
            Some((200, body.to_string()))
        };
        if let Some(charge) = book.charged.get(&key) {
            return told(Done::Repeated, charged(charge));
        }
        let is_first = match card.as_str() {
            Some("bank-down") => true,
            Some("busy") => book.busy.insert(key.clone()),
            _ => false,
        };
        if is_first {
            return told(Done::Unavailable, error(503, "come back later"));
        }
        if card == "declined" {
            return told(Done::Declined, error(402, "the card was declined"));
        }
        book.charges += 1;
        let charge = format!("ch_{}", book.charges);
        if !key.is_empty() {
            book.charged.insert(key.clone(), charge.clone());
        }
        let is_lost = card == "lost-answer";
        told(Done::Charged, charged(&charge).filter(|_| !is_lost))
    }
}

/// The next request of a connection; `None` = the client has closed it.
fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut limited = reader.take(BODY_MAX);
    let mut line = String::new();
    if limited.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = HashMap::new();
    for _ in 0..HEADERS_MAX {
        let mut header = String::new();
        limited.read_line(&mut header)?;
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length");
    let length = length.and_then(|n: &String| n.parse().ok()).unwrap_or(0);
    let mut body = Vec::new();
    reader.take(length).take(BODY_MAX).read_to_end(&mut body)?;
    Ok(Some(Request {
        line,
        headers,
        body,
    }))
}
