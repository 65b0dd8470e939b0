//! The target of a request: a URL that is safe to compare with rules.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The longest URL.
const URL_MAX: usize = 16 << 10;

/// How a server is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Without encryption.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// The port if none is named.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
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
    /// A URL that it repairs in silence is refused here, because a server could read it in another way.
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
        format!("{}://{}{}", self.scheme, self.authority(), self.path)
    }

    /// Whether the path is in this folder, or is it.
    pub(super) fn is_below(&self, prefix: &str) -> bool {
        let Some(rest) = self.path.strip_prefix(prefix) else {
            return false;
        };
        prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
    }

    /// The first segment of the path that servers may read in different ways: one may leave a folder by it.
    pub(super) fn unclear(&self) -> Option<&str> {
        unclear(&self.path)
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
        && target.is_ok_and(|t| t.path == text && t.query.is_none() && t.unclear().is_none())
        && !text.contains('#')
}

fn unclear(path: &str) -> Option<&str> {
    let is_plain = |segment: &&str| match percent_decode_str(segment).decode_utf8() {
        // An encoded slash is a slash to some servers.
        Ok(decoded) => decoded.split('/').all(is_plain),
        // An overlong form, such as `%c0%ae`, is a dot to some.
        Err(_) => false,
    };
    path.split('/').find(|segment| !is_plain(segment))
}

/// Whether every server reads this decoded segment as what it is. Some decode twice (`%252e`), know other
/// escapes (`%u002e`), turn full-width signs into ASCII, end a name at a NUL, cut off what follows `;`, or spaces.
fn is_plain(name: &str) -> bool {
    let is_known = |c: char| match c {
        '%' | '\\' => false,
        ' ' => true,
        c => c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric()),
    };
    let rest = name.trim_start_matches(['.', ' ']);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    name.chars().all(is_known) && (rest.len() == name.len() || rest.starts_with(is_name))
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
    fn a_path_prefix_ends_at_a_segment() {
        let below = |path: &str, prefix| target(&format!("http://e.com{path}")).is_below(prefix);
        for path in ["/v1", "/v1/", "/v1/a", "/v1/a%2Fb", "/v1/x/../b"] {
            assert!(below(path, "/v1"), "{path}");
        }
        for path in [
            "/",
            "/v10",
            "/V1",
            "//v1",
            "/%761/a",
            "/v1/../admin",
            "/v1/%2e%2e/admin",
        ] {
            assert!(!below(path, "/v1"), "{path}");
        }
        assert!(below("/v1/", "/v1/") && !below("/v1", "/v1/"));
    }

    #[test]
    fn only_plain_segments_are_clear() {
        let unclear = |path: &str| {
            target(&format!("http://e.com/v1/{path}"))
                .unclear()
                .map(str::to_owned)
        };
        for path in [
            "",
            "a//b/",
            "a%2Fb",
            "..a",
            ".well-known/x",
            "..-_",
            "a..",
            "a.b;c=d,e@f:$&'()*+!~|\"<>[]{}^`",
            "%7E",
            "a%20b",
            "%20a",
            "caf%C3%A9/%E5%AE%A2/%EF%BC%A1",
            "client/客",
        ] {
            assert_eq!(unclear(path), None, "{path}");
        }
        for segment in [
            // Steps that are encoded, once and several times.
            "..%2fadmin",
            "%2e%2e%2fadmin",
            "a%2f..",
            "a%2f.%2fb",
            "%252e%252e%252fadmin",
            "%25252525252e",
            "..%5cadmin",
            "..%255cadmin",
            // Other encodings of a dot or a slash.
            "%c0%ae%c0%ae",
            "%c0%ae%c0%ae%c0%afadmin",
            "%e0%80%ae%e0%80%ae",
            "%u002e%u002e",
            "%u002e%u002e%u2215admin",
            "%EF%BC%8E%EF%BC%8E",
            "%E2%80%A5",
            "..%EF%BC%8Fadmin",
            "..%E2%88%95admin",
            // What some servers cut off.
            "..;",
            "..;x=y",
            "..%3b",
            "..%20",
            "%20..",
            "..%20.",
            "...",
            "..%00",
            "..%00.html",
            "a%00b",
            "..%09",
            "..%0a",
            "..%7f",
            "..%c2%a0",
            "..%e2%80%8b",
            "..%3f",
            "..%23",
            "%20",
            // Not the escapes that there are.
            "100%",
            "%zz",
            "%25",
            "%ff",
        ] {
            assert_eq!(unclear(&format!("a/{segment}/b")).as_deref(), Some(segment));
        }
        for prefix in [
            "/v1/..%20",
            "/v1/%u002e",
            "/v1/%c0%ae",
            "/v1?x",
            "/v1#x",
            "v1",
        ] {
            assert!(!is_prefix(prefix), "{prefix}");
        }
        for prefix in ["/", "/v1", "/v1/a%20b/", "/caf%C3%A9"] {
            assert!(is_prefix(prefix), "{prefix}");
        }
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
