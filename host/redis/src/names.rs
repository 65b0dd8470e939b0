//! The addresses of names, as the resolver of the system answers them. A question blocks a thread, perhaps for
//! long, and nothing can end it.
//!
//! So the thread keeps what limits questions. A caller may give up: the question goes on, and still has its seat.
//! Callers that ask for the same name meanwhile wait for the same answer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;

/// The longest name, with the dot at its end: DNS has none that is longer.
const NAME_MAX: usize = 254;

/// Answers a name, on a thread of its own. The ports are 0.
pub type Ask = Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// `None`: there is no answer yet.
type Answer = Option<Result<Vec<SocketAddr>, Arc<io::Error>>>;

/// Asks for names. Clones share their questions and their seats.
#[derive(Clone)]
pub struct Names {
    questions: Arc<Questions>,
    /// How many questions of these clones may be under way.
    seats: Arc<Semaphore>,
}

/// The questions that are under way, by their names. There are no more of them than seats.
struct Questions {
    ask: Ask,
    asked: Mutex<HashMap<String, watch::Receiver<Answer>>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("seats", &self.seats.available_permits())
            .finish_non_exhaustive()
    }
}

impl Names {
    /// Names of the system, with `seats` seats. All of them in this process share their questions.
    pub fn system(seats: usize) -> Self {
        static SYSTEM: LazyLock<Arc<Questions>> = LazyLock::new(|| {
            let ask: Ask = Box::new(|name| Ok((name, 0).to_socket_addrs()?.collect()));
            Questions::new(ask)
        });
        Self {
            questions: Arc::clone(&SYSTEM),
            seats: Arc::new(Semaphore::new(seats)),
        }
    }

    /// Names that this answers, instead of the system.
    pub fn answered_by(ask: Ask, seats: usize) -> Self {
        Self {
            questions: Questions::new(ask),
            seats: Arc::new(Semaphore::new(seats)),
        }
    }

    /// The same names, with `seats` seats of their own.
    pub fn with_seats(&self, seats: usize) -> Self {
        Self {
            questions: Arc::clone(&self.questions),
            seats: Arc::new(Semaphore::new(seats)),
        }
    }

    /// The addresses of a name; their ports are 0. May be dropped at any time.
    ///
    /// # Errors
    /// The resolver has none.
    pub async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, 0)]);
        }
        if name.len() > NAME_MAX {
            let why = format!("a name has at most {NAME_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut seat = None;
        let mut answer = loop {
            if let Some(answer) = self.join(name, seat) {
                break answer;
            }
            let next = Arc::clone(&self.seats).acquire_owned().await;
            seat = Some(next.map_err(io::Error::other)?);
        };
        let lost = |_| io::Error::other("the question was given up");
        let answered = answer.wait_for(Option::is_some).await.map_err(lost)?;
        match answered.as_ref() {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Wait for the answer to a question that is under way, or ask it; `None`: that needs a seat, and none is
    /// free.
    fn join(
        &self,
        name: &str,
        seat: Option<OwnedSemaphorePermit>,
    ) -> Option<watch::Receiver<Answer>> {
        let mut asked = self.questions.asked.lock();
        if let Some(answer) = asked.get(name) {
            return Some(answer.clone());
        }
        let seat = seat.or_else(|| Arc::clone(&self.seats).try_acquire_owned().ok())?;
        let (sender, answer) = watch::channel(None);
        asked.insert(name.to_owned(), answer.clone());
        drop(asked);
        let question = Question {
            questions: Arc::clone(&self.questions),
            name: Some(name.to_owned()),
            answer: sender,
            _seat: seat,
        };
        spawn_blocking(move || question.ask());
        Some(answer)
    }
}

impl Questions {
    fn new(ask: Ask) -> Arc<Self> {
        Arc::new(Self {
            ask,
            asked: Mutex::default(),
        })
    }
}

/// A question, on its thread.
struct Question {
    questions: Arc<Questions>,
    /// `None`: no caller can join it any more.
    name: Option<String>,
    answer: watch::Sender<Answer>,
    _seat: OwnedSemaphorePermit,
}

impl Question {
    fn ask(mut self) {
        let answer = (self.questions.ask)(self.name.as_deref().unwrap_or_default());
        // First of all: a caller that comes after the answer has to get a new one.
        self.close();
        self.answer.send_replace(Some(answer.map_err(Arc::new)));
    }

    fn close(&mut self) {
        if let Some(name) = self.name.take() {
            self.questions.asked.lock().remove(&name);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::timeout;

    use super::*;

    /// Names that begin with `silent` are answered when this sender goes. Also which names were asked for.
    fn names(seats: usize) -> (Names, Arc<Mutex<Vec<String>>>, mpsc::SyncSender<()>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (noted, (sender, silence)) = (Arc::clone(&asked), mpsc::sync_channel::<()>(1));
        let silence = Mutex::new(silence);
        let ask: Ask = Box::new(move |name| {
            noted.lock().push(name.to_owned());
            if name.starts_with("silent") {
                silence.lock().recv().unwrap_or_default();
            }
            Ok(vec!["1.2.3.4:0".parse().unwrap()])
        });
        (Names::answered_by(ask, seats), asked, sender)
    }

    /// A question that is still under way after a moment.
    async fn give_up(names: &Names, name: &str) {
        let asking = names.addresses(name);
        let given_up = timeout(Duration::from_millis(20), asking).await;
        assert!(given_up.is_err(), "{name}: {given_up:?}");
    }

    #[tokio::test]
    async fn those_who_ask_for_a_name_at_the_same_time_share_one_question() {
        let (names, asked, silence) = names(8);
        for _ in 0..20 {
            give_up(&names, "silent.test").await;
        }
        let all = join_all((0..100).map(|_| names.addresses("silent.test")));
        let answer = async {
            give_up(&names, "silent.test").await;
            drop(silence);
        };
        let (answers, ()) = tokio::join!(all, answer);
        for answer in answers {
            assert_eq!(answer.unwrap(), ["1.2.3.4:0".parse().unwrap()]);
        }
        assert_eq!(*asked.lock(), ["silent.test"]);
        // The next one asks again.
        names.addresses("silent.test").await.unwrap();
        assert_eq!(asked.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_caller_never_gets_an_answer_from_before_it_asked() {
        let (names, asked, _silence) = names(1);
        for n in 1..=1_000 {
            names.addresses("name.test").await.unwrap();
            assert_eq!(asked.lock().len(), n);
            assert!(names.questions.asked.lock().is_empty());
        }
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_keeps_its_seat() {
        let (names, asked, silence) = names(4);
        let others = names.with_seats(1);
        for n in 0..50 {
            give_up(&names, &format!("silent-{n}.test")).await;
        }
        assert_eq!(asked.lock().len(), 4);
        give_up(&names, "other.test").await;
        // Seats are not shared; questions are.
        others.addresses("other.test").await.unwrap();
        give_up(&others, "silent-0.test").await;
        assert_eq!(asked.lock().len(), 5);
        drop(silence);
        names.addresses("other.test").await.unwrap();
        assert!(names.questions.asked.lock().len() <= 4);
    }

    #[tokio::test]
    async fn addresses_and_names_that_are_too_long_are_not_asked_for() {
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        let ask: Ask = Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(io::ErrorKind::NotFound.into())
        });
        let names = Names::answered_by(ask, 1);
        for address in ["127.0.0.1", "::1"] {
            let found = names.addresses(address).await.unwrap();
            assert_eq!(found[0].ip().to_string(), address);
        }
        let error = names.addresses(&"a".repeat(255)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        let error = names.addresses("unknown.test").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
