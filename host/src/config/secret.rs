//! URLs that may hold a password.

use std::fmt;

use crate::redis::target::{PasswordSource, Secret, Target, TargetError, TlsFiles};
use crate::values::{Invalid, Value};

/// The text in place of a secret.
pub(super) const MASK: &str = "***";

/// The URL of Redis. It may hold a password, so it is shown masked.
#[derive(Clone, Eq, PartialEq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// A URL that names a server.
    ///
    /// # Errors
    /// Names the part that is wrong, without its text.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        Target::parse(text, PasswordSource::Url, TlsFiles::default())?;
        Ok(Self(text.to_owned()))
    }

    /// The URL itself, password included: for the connection only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it holds a password.
    pub fn has_password(&self) -> bool {
        self.masked() != self.0
    }

    /// The URL with its password masked.
    pub fn masked(&self) -> String {
        Self::mask(&self.0)
    }

    /// A text that may be a URL, with its password masked.
    ///
    /// Passwords are often pasted without percent-encoding, so the userinfo ends at the *last* `@`. This masks
    /// rather too much than too little.
    pub fn mask(text: &str) -> String {
        let Some((scheme, rest)) = text.split_once("://") else {
            return MASK.to_owned();
        };
        let rest = match rest.rsplit_once('@') {
            Some((userinfo, rest)) => match userinfo.split_once(':') {
                Some((user, _)) => format!("{user}:{MASK}@{}", mask_query(rest)),
                None => format!("{userinfo}@{}", mask_query(rest)),
            },
            None => mask_query(rest),
        };
        format!("{scheme}://{rest}")
    }
}

/// URLs of Unix sockets carry a password as `?pass=...`.
fn mask_query(rest: &str) -> String {
    let Some((path, query)) = rest.split_once('?') else {
        return rest.to_owned();
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().starts_with("pass") => {
            format!("{name}={MASK}")
        }
        _ => pair.to_owned(),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl Value for Secret {
    const TYPE: &'static str = "secret";

    fn parse(text: &str) -> Result<Self, Invalid> {
        String::parse(text).map(Self::new)
    }

    fn show(&self) -> String {
        MASK.to_owned()
    }
}

/// Where Redis is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedisAt {
    /// A server of our own, started and ended with this process.
    Embedded,
    /// A server at this URL.
    Url(RedisUrl),
}

impl Value for RedisAt {
    const TYPE: &'static str = "URL or `embedded`";

    fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        RedisUrl::parse(text).map(Self::Url).map_err(|error| {
            let invalid = Invalid::new(error.to_string());
            match error {
                _ if is_host_and_port(text) => {
                    invalid.hint(format!("did you mean `redis://{text}`?"))
                }
                TargetError::Url => invalid.hint("or `embedded`, for a private server"),
                // The others say what to write.
                _ => invalid,
            }
        })
    }

    fn show(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            Self::Url(url) => url.masked(),
        }
    }
}

/// `host:port`, perhaps with a database. Other texts may be a password, and are not repeated.
fn is_host_and_port(text: &str) -> bool {
    let is_host = |host: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        !host.is_empty() && host.chars().all(good)
    };
    text.split_once(':').is_some_and(|(host, rest)| {
        let (port, database) = rest.split_once('/').unwrap_or((rest, "0"));
        is_host(host) && port.parse::<u16>().is_ok() && database.parse::<u32>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_masks_its_password() {
        let cases = [
            ("redis://:hunter2@db:6379/0", "redis://:***@db:6379/0"),
            ("rediss://app:hunter2@db", "rediss://app:***@db"),
            ("redis://app:hunter2%40@db/1", "redis://app:***@db/1"),
            (
                "unix:///run/r.sock?db=1&pass=hunter2",
                "unix:///run/r.sock?db=1&pass=***",
            ),
        ];
        for (url, masked) in cases {
            let url = RedisUrl::parse(url).unwrap();
            assert_eq!(url.to_string(), masked);
            assert_eq!(format!("{url:?}"), masked);
            assert!(url.has_password());
        }
        for url in ["redis://db:6379", "redis://app@db:6379"] {
            assert!(!RedisUrl::parse(url).unwrap().has_password());
        }
    }

    #[test]
    fn passwords_that_break_the_url_are_masked_too() {
        for (text, masked) in [
            ("redis://app:hun@ter2/hunter2@db", "redis://app:***@db"),
            ("redis://app:hunter2?@db/1", "redis://app:***@db/1"),
            ("hunter2@db", "***"),
        ] {
            assert_eq!(RedisUrl::mask(text), masked);
        }
    }

    #[test]
    fn errors_do_not_repeat_the_url() {
        for text in ["hunter2", "hunter2://db", "redis://"] {
            let error = RedisUrl::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
