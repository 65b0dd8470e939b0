//! Errors of handlers.

use std::any::type_name;
use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

type Boxed = Box<dyn StdError + Send + Sync>;

/// Why the handler wants the message again. Every error becomes one by `?`, also text, and errors of `anyhow`.
///
/// It remembers the type of the error and the place of the `?`: hostler tells causes apart by them.
pub struct Error {
    pub(crate) error: Boxed,
    pub(crate) name: &'static str,
    pub(crate) place: &'static Location<'static>,
}

impl<E: Into<Boxed>> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            name: type_name::<E>(),
            place: Location::caller(),
        }
    }
}

impl fmt::Display for Error {
    /// The error, and what caused it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.error.to_string();
        for cause in self.chain().skip(1) {
            let cause = cause.to_string();
            // Many errors repeat the text of their cause.
            if !text.contains(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}, at {}", self.place)
    }
}

impl Error {
    fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let first: &(dyn StdError + 'static) = &*self.error;
        std::iter::successors(Some(first), |&error| error.source())
    }

    /// The error of this type, in the error or in what caused it.
    pub fn find<T: StdError + 'static>(&self) -> Option<&T> {
        self.chain().find_map(|error| error.downcast_ref())
    }

    /// Its type; `None` if that says nothing.
    pub(crate) fn type_name(&self) -> Option<&'static str> {
        let says_nothing = ["alloc::", "&", "anyhow::"];
        let is_plain = says_nothing.iter().any(|prefix| self.name.starts_with(prefix));
        (!is_plain).then_some(self.name)
    }
}

/// The error of a handler that gives the message up: it becomes a dead letter with this reason. An error that it
/// caused does the same, with its own text.
#[derive(Clone, Debug)]
pub struct Drop(pub String);

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Drop {}

/// The error of a handler that wants the message again after this time, at most 30 days. An error that it caused
/// does the same, and its text goes to the log.
#[derive(Clone, Copy, Debug)]
pub struct RetryAfter(pub Duration);

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "again in {:?}", self.0)
    }
}

impl StdError for RetryAfter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Charging(Drop);

    impl fmt::Display for Charging {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("order 7")
        }
    }

    impl StdError for Charging {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_keeps_its_type_its_place_and_what_caused_it() {
        let line = line!() + 1;
        let error = (|| -> Result<(), Error> { Err("x".parse::<u8>().unwrap_err())? })().unwrap_err();
        assert_eq!(error.place.line(), line);
        assert_eq!(error.type_name(), Some("core::num::error::ParseIntError"));
        let error = Error::from(Charging(Drop("declined".to_owned())));
        assert_eq!(error.to_string(), "order 7: declined");
        assert!(error.find::<Drop>().is_some());
        assert!(error.find::<RetryAfter>().is_none());
    }

    #[test]
    fn text_is_an_error_without_a_type() {
        for error in [Error::from("sold out"), Error::from("sold out".to_owned())] {
            assert_eq!(error.type_name(), None);
            assert_eq!(error.to_string(), "sold out");
        }
    }
}
