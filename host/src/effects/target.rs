//! The target of a request: a URL that is safe to compare with rules.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The longest URL.
const URL_MAX: usize = 16 << 10;

/// How often a path is decoded in the search for `..`: servers behind proxies decode twice.
const DECODED_MAX: usize = 4;

/// How a server is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Without encryption.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// The name in URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port if none is named.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The server and the path of a URL, in their normal form.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) path: String,
    query: Option<String>,
}

impl Target {
    /// Read a URL. The error follows the words "the URL".
    ///
    /// The parser is that of browsers: it knows every way to write an address, such as `2130706433`.
    /// What it repairs in silence is refused here, because a server could read it in another way.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > URL_MAX {
            return Err(format!("has more than {URL_MAX} bytes"));
        }
        if text.bytes().any(|b| b <= b' ' || b == 0x7f || b == b'\\') {
            return Err("holds a space, a control character or a backslash".to_owned());
        }
        let Some((_, rest)) = text.split_once("://") else {
            return Err("is not absolute".to_owned());
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("names a user: send a header instead".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("is not valid: {error}"))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err("is neither `http` nor `https`".to_owned()),
        };
        let host = url.host().ok_or("names no host")?.to_owned();
        Ok(Self {
            scheme,
            host,
            port: url.port().unwrap_or(scheme.port()),
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        })
    }

    /// The URI of the request, made of the parts that the rules were compared with.
    pub(super) fn uri(&self) -> Result<http::Uri, http::uri::InvalidUri> {
        self.to_string().parse()
    }

    /// The host, with its port unless it is the usual one.
    pub(super) fn authority(&self) -> String {
        match self.port == self.scheme.port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The URL without what follows the path: a query may hold what should not be logged.
    pub(super) fn without_query(&self) -> String {
        format!("{}://{}{}", self.scheme.name(), self.authority(), self.path)
    }

    /// Whether the path is in this folder, or is it.
    pub(super) fn is_below(&self, prefix: &str) -> bool {
        let Some(rest) = self.path.strip_prefix(prefix) else {
            return false;
        };
        let is_segment = prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/');
        is_segment && (prefix == "/" || !climbs(&self.path))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_query())?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

/// Whether a text can be the path prefix of a rule: it stands so in URLs.
pub fn is_prefix(text: &str) -> bool {
    let target = Target::parse(&format!("http://host{text}"));
    text.starts_with('/')
        && target.is_ok_and(|t| t.path == text && t.query.is_none() && !climbs(text))
        && !text.contains('#')
}

/// Whether a server could find a step upwards in the path, however it is encoded.
fn climbs(path: &str) -> bool {
    let mut path = path.to_owned();
    for _ in 0..DECODED_MAX {
        // Some servers cut parameters (`..;x`) from a segment first.
        let segments = path.split(['/', '\\']);
        let mut names = segments.map(|s| s.split(';').next().unwrap_or_default());
        if names.any(|name| name == ".." || name == ".") {
            return true;
        }
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            return false;
        }
        path = decoded;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).unwrap_or_else(|why| panic!("{url} {why}"))
    }

    #[test]
    fn every_way_to_write_an_address_is_the_same_address() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
        ] {
            let found = target(&format!("http://{host}/"));
            assert_eq!(found.host.to_string(), "127.0.0.1", "{host}");
        }
        assert_eq!(
            target("http://[::ffff:7f00:1]/").host.to_string(),
            "[::ffff:7f00:1]"
        );
        assert_eq!(
            target("http://EXAMPLE.com").to_string(),
            "http://example.com/"
        );
        assert_eq!(
            target("https://e.com:443/a?b#c").to_string(),
            "https://e.com/a?b"
        );
        assert_eq!(target("https://e.com:80/").authority(), "e.com:80");
    }

    #[test]
    fn urls_that_can_be_read_in_two_ways_are_refused() {
        for url in [
            "/relative",
            "//e.com/",
            "https:e.com",
            "ftp://e.com/",
            "file:///etc/passwd",
            "http://",
            "http://user@e.com/",
            "http://user:password@e.com/",
            "http://e.com@127.0.0.1/",
            "http://e.com\\@127.0.0.1/",
            "http://e.com\\.evil.com/",
            "http://e .com/",
            "http://e.com/\r\nhost: evil",
            "http://e.com/\n",
            "\thttp://e.com/",
            "http://e.com:99999/",
            "http://[::1%25eth0]/",
            "http://256.256.256.256/",
            "http://1.2.3.4.5/",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
        let long = format!("http://e.com/{}", "x".repeat(URL_MAX));
        assert!(Target::parse(&long).is_err());
    }

    #[test]
    fn a_path_prefix_ends_at_a_segment_and_cannot_be_left() {
        let below = |path: &str, prefix| target(&format!("http://e.com{path}")).is_below(prefix);
        for path in ["/v1", "/v1/", "/v1/a", "/v1/a%2Fb", "/v1/..a", "/v1/%7E"] {
            assert!(below(path, "/v1"), "{path}");
        }
        for path in [
            "/",
            "/v10",
            "/V1",
            "//v1",
            "/v1/../admin",
            "/v1/%2e%2e/admin",
            "/v1/..%2fadmin",
            "/v1/%2e%2e%2fadmin",
            "/v1/%252e%252e%252fadmin",
            "/v1/..%5cadmin",
            "/v1/..;/admin",
            "/v1/%25252525252e",
        ] {
            assert!(!below(path, "/v1"), "{path}");
        }
        assert!(below("/..%2fanything", "/"));
        assert!(below("/v1/", "/v1/") && !below("/v1", "/v1/"));
    }

    #[test]
    fn a_target_is_the_uri_that_is_sent() {
        for url in [
            "http://e.com/",
            "https://e.com:8443/a/b?c=d&e",
            "http://[::1]:8080/x",
        ] {
            assert_eq!(target(url).uri().unwrap().to_string(), url);
        }
    }
}
