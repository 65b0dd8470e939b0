//! Requests whose answers are recorded, or given again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::journaled::{pairs, replayed};
use super::provider::{Body, HttpError, HttpRequest};
use crate::delivery::journal::Content;
use crate::delivery::quoted::{Pairs, Text};
use crate::delivery::recording::{Ask, Place, Player, Tape, Track};
use crate::delivery::text::truncated;
use crate::grants::recorded::{UNRECORDED, short};

/// The longest URL that is shown.
const URL_MAX: usize = 200;

/// An answer, as it is recorded.
#[derive(Debug, Deserialize, Serialize)]
struct Answer {
    status: u16,
    headers: Pairs,
    /// As far as the guest has read it.
    body: Text,
    /// How the body ended early.
    error: Option<HttpError>,
}

/// A digest of what a request says, while its body goes by.
#[derive(Clone)]
struct Said(Arc<Mutex<Sha256>>);

impl Said {
    /// Secrets stand in it by name. So does no body behind one: it may hold the secret in any form.
    fn of(track: &Track, request: &HttpRequest) -> (Ask, Self) {
        let mut digest = Sha256::new();
        let url = track.without_secrets(&request.url);
        for part in [&request.method, &url] {
            digest.update(part);
            digest.update("\n");
        }
        for (name, value) in &request.headers {
            let value = String::from_utf8_lossy(value);
            digest.update(format!("{name}:{}\n", track.without_secrets(&value)));
        }
        // As in the list of calls: without what may be secret.
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let shown = format!(
            "{} {}",
            truncated(&request.method, 16),
            truncated(shown, URL_MAX)
        );
        (
            Ask::new(&shown, String::new()),
            Self(Arc::new(Mutex::new(digest))),
        )
    }

    fn says(&self, bytes: &[u8]) {
        self.0.lock().update(bytes);
    }

    fn digest(&self) -> String {
        short(&self.0.lock().clone().finalize())
    }
}

/// The recorded answer to a request.
async fn play(
    track: &Track,
    player: &Player,
    request: HttpRequest,
) -> Result<Response<Body>, HttpError> {
    let (mut ask, said) = Said::of(track, &request);
    let counts = !track.has_read_secret();
    let mut body = request.body;
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref().filter(|_| counts) {
            said.says(data);
        }
    }
    ask.digest = said.digest();
    let recorded = player.next(&ask);
    let recorded = recorded.and_then(|answer| serde_json::from_value(answer).ok());
    let unrecorded = || HttpError::Protocol(UNRECORDED.to_owned());
    let answer: Result<Answer, HttpError> = recorded.ok_or_else(unrecorded)?;
    let Answer {
        status,
        headers: Pairs(headers),
        body: Text(body),
        error,
    } = answer?;
    let response = replayed(Content::Response {
        status,
        headers,
        body,
    })?;
    Ok(response.map(|body| match error {
        None => body,
        Some(error) => Body::new(Broken(Some(body), error)),
    }))
}

/// The recorded answer to a request; or `send` sends it, and its answer is recorded.
pub(super) async fn send<F>(
    track: &Arc<Track>,
    mut request: HttpRequest,
    send: impl FnOnce(HttpRequest) -> F,
) -> Result<Response<Body>, HttpError>
where
    F: Future<Output = Result<Response<Body>, HttpError>>,
{
    let tape = match &**track {
        Track::Records(tape) => tape,
        Track::Plays(player) => return play(track, player, request).await,
    };
    let (ask, said) = Said::of(track, &request);
    if !track.has_read_secret() && !request.body.is_end_stream() {
        request.body = Body::new(Saying(request.body, said.clone()));
    }
    let place = tape.begin(ask, Instant::now());
    match send(request).await {
        Err(error) => {
            let digest = Some(said.digest());
            tape.answer(place, digest, Err::<(), _>(&error), Instant::now());
            Err(error)
        }
        Ok(response) => {
            let answer = Answer {
                status: response.status().as_u16(),
                headers: Pairs(pairs(response.headers())),
                body: Text(Bytes::new()),
                error: None,
            };
            Ok(response.map(|body| {
                Body::new(Taped {
                    body,
                    track: Arc::clone(track),
                    place,
                    said,
                    fits: true,
                    answer,
                    taken: Vec::new(),
                })
            }))
        }
    }
}

/// The body of a request, which is said on its way.
struct Saying(Body, Said);

impl http_body::Body for Saying {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.1.says(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The body of an answer, which is recorded as far as the guest reads it.
struct Taped {
    body: Body,
    track: Arc<Track>,
    place: Place,
    said: Said,
    /// There was room for all of it so far.
    fits: bool,
    answer: Answer,
    taken: Vec<u8>,
}

impl Taped {
    fn tape(&self) -> Option<&Tape> {
        match &*self.track {
            Track::Records(tape) => Some(tape),
            Track::Plays(_) => None,
        }
    }

    fn take(&mut self, data: &[u8]) {
        self.fits &= self.tape().is_some_and(|tape| tape.hold(data.len()));
        match self.fits {
            true => {
                self.taken.reserve_exact(data.len());
                self.taken.extend_from_slice(data);
            }
            false => drop(self.let_go()),
        }
    }

    /// Give the room of what was taken back.
    fn let_go(&mut self) -> Vec<u8> {
        let taken = std::mem::take(&mut self.taken);
        if let Some(tape) = self.tape() {
            tape.give_back(taken.len());
        }
        taken
    }
}

impl http_body::Body for Taped {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) if self.fits => {
                if let Some(data) = frame.data_ref() {
                    self.take(data);
                }
            }
            Poll::Ready(Some(Err(error))) => self.answer.error = Some(error.clone()),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Taped {
    fn drop(&mut self) {
        let taken = self.let_go();
        if !self.fits {
            return;
        }
        self.answer.body = Text(taken.into());
        if let Some(tape) = self.tape() {
            let digest = self.said.digest();
            let answer = Ok::<_, ()>(&self.answer);
            tape.answer(self.place, Some(digest), answer, Instant::now());
        }
    }
}

/// A body that ends with an error.
struct Broken(Option<Body>, HttpError);

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match self.0.as_mut().map(|body| Pin::new(body).poll_frame(cx)) {
            Some(Poll::Ready(None)) | None => {
                self.0 = None;
                Poll::Ready(Some(Err(self.1.clone())))
            }
            Some(polled) => polled,
        }
    }
}
