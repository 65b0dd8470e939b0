//! The types of single settings: words, shares, digests, routes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

use http::Uri;
use serde_json::Value as Json;
use url::Url;

use crate::delivery::attempt::Accounting;
use crate::delivery::policy::{OnCap, OnFault, Reason, Reasons};
use crate::outgoing::outbox::Mode;
use crate::queue::dead_letter_queue::OnFull;
use crate::queue::pubsub::OnOverflow;
use crate::queue::stream::{GroupStart, Retention};
use crate::rollout::breaker::OnBreak;
use crate::rollout::canary::Share;
use crate::telemetry::logging::{LogFilter, LogFormat};
use crate::telemetry::otlp::Protocol;
use crate::telemetry::otlp::dropped::Signal;
use crate::values::schema;
use crate::values::{Invalid, Value, not_one_of, words};
use crate::wire::list::Framing;
use crate::wire::stream::MissingBody;

words!(@value OnCap { DeadLetter = "dead-letter", Discard = "discard" });
words!(@value MissingBody { Json = "json", Malformed = "malformed" });
words!(@value GroupStart { Beginning = "0", End = "$" });
words!(@value OnOverflow { DropNewest = "drop-newest", DropOldest = "drop-oldest" });
words!(@value Mode { Auto = "auto", Always = "always" });
words!(@value OnFull { DropOldest = "drop-oldest", Stop = "stop" });
words!(@value LogFormat { Auto = "auto", Pretty = "pretty", Json = "json" });
words!(@value Framing { Auto = "auto", Frame = "frame", Raw = "raw", Json = "json" });
words!(@value Accounting { Lazy = "lazy", Exact = "exact" });
words!(@value OnBreak { Stop = "stop", Rollback = "rollback" });
words!(@value Protocol { Grpc = "grpc", Http = "http" });
words!(@value OnFault { Requeue = "requeue", DeadLetter = "dead-letter" });

/// The format of bodies, or of values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Codec {
    /// Values are binary frames.
    Frame,
    /// Bodies are JSON; or values are readable envelopes.
    Json,
    /// Bodies are MessagePack.
    MsgPack,
    /// Bodies are UTF-8 text.
    Utf8,
}

words!(@value Codec { Frame = "frame", Json = "json", MsgPack = "msgpack", Utf8 = "utf8" });

words! {
    /// Who must have what must not be lost.
    Durability {
        /// The server that took it.
        Primary = "primary",
        /// Also one of its replicas.
        Replica = "replica",
    }
}

/// What a dead letter keeps of the calls of its last attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Recording {
    /// Nothing.
    Off,
    /// Names, targets, status, time and size.
    Calls,
    /// These, and every answer of the host.
    Full,
}

words!(@value Recording { Off = "off", Calls = "calls", Full = "full" });

words! {
    /// The output at the end.
    SummaryFormat {
        /// Nothing.
        None = "none",
        /// One line of JSON on stdout.
        Json = "json",
    }
}

impl Value for Retention {
    const TYPE: &'static str = "`keep` | `acked` | `maxlen:N`";

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text.split_once(':') {
            None if text == "keep" => Ok(Self::Keep),
            None if text == "acked" => Ok(Self::Acked),
            Some(("maxlen", n)) => NonZeroU64::parse(n).map(|n| Self::MaxLen(n.get())),
            _ => Err(not_one_of(text, &["keep", "acked", "maxlen:N"])),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Keep => "keep".to_owned(),
            Self::Acked => "acked".to_owned(),
            Self::MaxLen(n) => format!("maxlen:{n}"),
        }
    }

    fn schema() -> Json {
        schema::text("^(keep|acked|maxlen:[0-9_]*[1-9][0-9_]*)$")
    }
}

/// The form of a share.
const SHARE: &str = "^[0-9]+(\\.[0-9]+)?\\s*%$";

impl Value for Share {
    const TYPE: &'static str = "share";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || {
            Invalid::new(format!("`{text}` is not a share"))
                .hint("shares look like `10%` or `0.5%`, up to `100%`")
        };
        let number = text.strip_suffix('%').map(str::trim);
        let percent = number.and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        let percent = percent.ok_or_else(wrong)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 10,000"
        )]
        let points = (percent * 100.0).round() as u32;
        Self::from_basis_points(points).ok_or_else(wrong)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn schema() -> Json {
        schema::text(SHARE)
    }
}

/// A setting that can be switched off by the word `off`.
macro_rules! or_off {
    ($(#[$doc:meta])* $name:ident, $variant:ident($type:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub(super) enum $name {
            /// The word `off`.
            Off,
            /// A value.
            $variant($type),
        }

        impl Value for $name {
            const TYPE: &'static str = concat!($word, " | `off`");

            fn parse(text: &str) -> Result<Self, Invalid> {
                match text {
                    "off" => Ok(Self::Off),
                    _ => <$type>::parse(text).map(Self::$variant),
                }
            }

            fn show(&self) -> String {
                match self {
                    Self::Off => "off".to_owned(),
                    Self::$variant(value) => value.show(),
                }
            }

            fn beside(self, folder: &std::path::Path) -> Self {
                match self {
                    Self::Off => Self::Off,
                    Self::$variant(value) => Self::$variant(value.beside(folder)),
                }
            }

            fn schema() -> Json {
                serde_json::json!({ "anyOf": [{ "const": "off" }, <$type>::schema()] })
            }
        }
    };
}

or_off!(
    /// The share of faults that stops a queue.
    BreakAt, Share(Share), "share"
);
or_off!(
    /// The directory of compiled components.
    CompileCache, Dir(PathBuf), "path"
);

/// A component's digest: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Digest(String);

impl Digest {
    /// The text, hexadecimal digits in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Digest {
    const TYPE: &'static str = "digest";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(format!("sha256:{}", hex.to_ascii_lowercase())));
        }
        Err(Invalid::new(format!("`{text}` is not a digest"))
            .hint("`hostler check FILE` prints the digest of a component"))
    }

    fn show(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Json {
        schema::text("^(sha256:)?[0-9a-fA-F]{64}$")
    }
}

impl Value for LogFilter {
    const TYPE: &'static str = "log filter";

    fn parse(text: &str) -> Result<Self, Invalid> {
        // A word that is not a level would count as a target, and silence everything else.
        let levels = ["error", "warn", "info", "debug", "trace", "off"];
        let lone = !text.contains(['=', ',']);
        if lone && !levels.iter().any(|level| level.eq_ignore_ascii_case(text)) {
            return Err(not_one_of(text, &levels));
        }
        Self::new(text)
            .map_err(|error| Invalid::new(format!("`{text}` is not a log filter: {error}")))
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Value for Uri {
    const TYPE: &'static str = "URL";

    // The text may hold a password: no error repeats it.
    fn parse(text: &str) -> Result<Self, Invalid> {
        let hint = "it looks like `http://localhost:4317` or `https://collector.example.com`";
        let url = Url::parse(text);
        let url = url.map_err(|error| Invalid::new(format!("is not a URL: {error}")).hint(hint))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Invalid::new("holds a user or a password")
                .hint("write what the collector needs into `otlp.headers_file`"));
        }
        let is_plain = url.query().is_none() && url.fragment().is_none();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !is_plain {
            let what = "is not a URL with `http` or `https`, a server, and no query";
            return Err(Invalid::new(what).hint(hint));
        }
        let uri = url.as_str().parse();
        uri.map_err(|error| Invalid::new(format!("is not a URL: {error}")).hint(hint))
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn schema() -> Json {
        schema::text("^https?://[^@?#]+$")
    }
}

impl Value for Vec<Signal> {
    const TYPE: &'static str = "signals";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let signal = |word: &str| {
            let mut known = Signal::ALL.into_iter();
            let found = known.find(|signal| signal.label() == word);
            found.ok_or_else(|| not_one_of(word, &Signal::ALL.map(Signal::label)))
        };
        let words = text.split(',').map(str::trim);
        words.map(signal).collect()
    }

    fn show(&self) -> String {
        let labels: Vec<&str> = self.iter().map(|signal| signal.label()).collect();
        labels.join(", ")
    }

    fn schema() -> Json {
        let one = Signal::ALL.map(Signal::label).join("|");
        schema::text(&format!("^\\s*({one})\\s*(,\\s*({one})\\s*)*$"))
    }
}

/// Names of headers, in lower case.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderNames(pub Vec<String>);

impl Value for HeaderNames {
    const TYPE: &'static str = "header names";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let names: Vec<String> = text.split(',').map(|n| n.trim().to_lowercase()).collect();
        if names.iter().any(String::is_empty) {
            return Err(Invalid::new(format!("`{text}` has an empty name"))
                .hint("write names separated by commas: `x-tenant, x-order`"));
        }
        Ok(Self(names))
    }

    fn show(&self) -> String {
        self.0.join(", ")
    }
}

/// The route that discards a message.
const DISCARD: &str = "discard";

/// The destination of dead letters by reason; `None` = they are discarded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RouteTable(pub BTreeMap<Reason, Option<String>>);

impl RouteTable {
    /// The reasons for which messages are discarded.
    pub(super) fn discarded(&self) -> Reasons {
        let discarded = self.0.iter().filter(|(_, key)| key.is_none());
        Reasons::new(discarded.map(|(reason, _)| *reason))
    }

    /// The first route to a key.
    pub(super) fn first_key(&self) -> Option<(Reason, &str)> {
        let mut routes = self.0.iter();
        routes.find_map(|(reason, key)| Some((*reason, key.as_deref()?)))
    }
}

impl Value for RouteTable {
    const TYPE: &'static str = "routes";

    fn parse(text: &str) -> Result<Self, Invalid> {
        let mut routes = BTreeMap::new();
        for route in text.split(',') {
            let Some((label, key)) = route.split_once('=') else {
                let what = format!("`{}` is not a route", route.trim());
                let hint = "write routes as `reason=key` or `reason=discard`, separated by commas";
                return Err(Invalid::new(what).hint(hint));
            };
            let (label, key) = (label.trim(), key.trim());
            let Some(reason) = Reason::from_label(label) else {
                return Err(not_one_of(label, &Reason::ALL.map(Reason::label)));
            };
            if key.is_empty() {
                return Err(Invalid::new(format!("the route of `{label}` names no key"))
                    .hint("write `discard` to lose these messages"));
            }
            let key = (key != DISCARD).then(|| key.to_owned());
            if routes.insert(reason, key).is_some() {
                return Err(Invalid::new(format!("`{label}` has two routes")).hint("keep one"));
            }
        }
        Ok(Self(routes))
    }

    fn show(&self) -> String {
        let route = |(reason, key): (&Reason, &Option<String>)| {
            format!("{}={}", reason.label(), key.as_deref().unwrap_or(DISCARD))
        };
        self.0.iter().map(route).collect::<Vec<_>>().join(", ")
    }
}
