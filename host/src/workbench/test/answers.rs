//! The answers to the HTTP requests of a case. They come from a server in this process that stands in for
//! every other one: the rules of the configuration apply, and nothing leaves the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, Uri};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::delivery::text::{printable, truncated};
use crate::grants::http::stand_in::{Answering, Asked};

/// The most requests of an attempt that are named.
const SEEN_MAX: usize = 100;
/// The longest text of a request in an objection.
const SHOWN_MAX: usize = 1_000;

/// A request that the handler must send, and the answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExchangeToml {
    /// The method and the URL: `POST https://example.com/path`.
    request: String,
    /// The body of the request, if it must be this one.
    sends: Option<String>,
    /// The status of the answer: 200 if not given.
    #[schemars(range(min = 100, max = 999))]
    status: Option<u16>,
    /// The headers of the answer.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body of the answer.
    body: Option<String>,
}

/// The same, checked.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// `POST https://example.com/`.
    request: String,
    /// The body of the request, if it must be this one.
    sends: Option<String>,
    answer: Response<Bytes>,
}

impl ExchangeToml {
    pub(super) fn exchange(self) -> Result<Exchange, String> {
        let is_request = |(method, url): (&str, &str)| {
            let uri: Result<Uri, _> = url.parse();
            !method.is_empty() && uri.is_ok_and(|uri| uri.scheme().is_some())
        };
        if !self.request.split_once(' ').is_some_and(is_request) {
            return Err("`request` is not like `POST https://example.com/path`".to_owned());
        }
        let mut answer = Response::new(Bytes::from(self.body.unwrap_or_default()));
        let status = self.status.unwrap_or(200);
        *answer.status_mut() = StatusCode::from_u16(status)
            .ok()
            .filter(|status| !status.is_informational())
            .ok_or_else(|| format!("`status`: {status} is not a status of an answer"))?;
        for (name, value) in self.headers {
            let header = HeaderName::from_bytes(name.as_bytes()).ok();
            let header = header.zip(HeaderValue::from_str(&value).ok());
            let (name, value) =
                header.ok_or_else(|| format!("`headers`: `{name}` is not valid"))?;
            answer.headers_mut().append(name, value);
        }
        Ok(Exchange {
            request: self.request,
            sends: self.sends,
            answer,
        })
    }
}

/// The exchanges of the running case.
#[derive(Clone, Default)]
pub(super) struct Answers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Those that have not happened.
    open: Vec<Exchange>,
    /// Requests that no exchange allows.
    unexpected: Vec<String>,
}

impl Answers {
    /// Begin a case.
    pub(super) fn begin(&self, exchanges: &[Exchange]) {
        *self.0.lock() = State {
            open: exchanges.to_vec(),
            unexpected: Vec::new(),
        };
    }

    /// What was sent and not expected, or expected and not sent; `None` = everything happened.
    pub(super) fn objection(&self) -> Option<String> {
        let state = self.0.lock();
        let expected = |exchange: &Exchange| match &exchange.sends {
            Some(body) => format!("`{} {body}`", exchange.request),
            None => format!("`{}`", exchange.request),
        };
        let missing = state.open.first().map(expected);
        match (missing, state.unexpected.first()) {
            (Some(missing), Some(sent)) => Some(format!(
                "expected the request {missing}, and it sent `{sent}`"
            )),
            (Some(missing), None) => Some(format!("expected the request {missing}")),
            (None, Some(sent)) => Some(format!("did not expect the request `{sent}`")),
            (None, None) => None,
        }
    }

    /// Gives the answers.
    pub(super) fn answering(&self) -> Answering {
        let answers = self.clone();
        Arc::new(move |asked| answers.answer(&asked))
    }

    fn answer(&self, asked: &Asked) -> Response<Bytes> {
        let Asked { line, body } = asked;
        let mut state = self.0.lock();
        let is_it = |exchange: &Exchange| {
            let sends = exchange.sends.as_ref();
            exchange.request == *line && sends.is_none_or(|sends| sends.as_bytes() == body)
        };
        if let Some(at) = state.open.iter().position(is_it) {
            return state.open.remove(at).answer;
        }
        if state.unexpected.len() < SEEN_MAX {
            let sent = format!("{line} {}", String::from_utf8_lossy(body));
            let sent = printable(truncated(sent.trim_end(), SHOWN_MAX));
            state.unexpected.push(sent);
        }
        let mut answer = Response::new(Bytes::from_static(b"the case has no answer"));
        *answer.status_mut() = StatusCode::NOT_IMPLEMENTED;
        answer
    }
}
