//! The address of Redis, and the login. No `Debug`, `Display` or error shows a secret.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;
use crate::hint::ENCRYPTED_KEY;

/// A text that `Debug` never shows. `SecretString` of the crate `secrecy` has no equality, which
/// [`PasswordSource`] needs.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// Hide this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the login.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The source of the password. A file is read at every connect, so that a password may be rotated
/// without a restart.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PasswordSource {
    /// From the URL, if it names one.
    #[default]
    Url,
    /// This one, before the one in the URL.
    Given(Secret),
    /// The content of this file, without the line ends behind it.
    File(PathBuf),
}

/// Files of a `rediss://` connection, PEM; read at every connect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// Certificates to trust instead of the well-known ones.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key of this client.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Which servers there are, and how the one that serves is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Servers {
    /// One server, or one node of a cluster.
    One(ConnectionAddr),
    /// A cluster: nodes to ask which node serves what.
    Cluster(Vec<ConnectionAddr>),
    /// A primary with replicas: Sentinels to ask for the primary of this name.
    Sentinel {
        /// At least one.
        sentinels: Vec<ConnectionAddr>,
        /// The name of the primary.
        master: String,
    },
}

/// The login to the Sentinels: they have users of their own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SentinelLogin {
    /// The user; `None` = the default one.
    pub username: Option<String>,
    /// This password; `PasswordSource::Url` = none.
    pub password: PasswordSource,
}

/// Servers, a database on them, and a user.
#[derive(Clone)]
pub struct Target {
    pub(crate) servers: Servers,
    pub(crate) database: i64,
    pub(crate) username: Option<String>,
    pub(crate) url_password: Option<Secret>,
    pub(crate) password: PasswordSource,
    pub(crate) tls: TlsFiles,
    pub(crate) resp3: bool,
    pub(crate) sentinel_login: SentinelLogin,
}

/// Why a URL is wrong. Never shows the URL: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is not a URL of a known kind.
    #[error(
        "the redis url is not valid: write redis://host:port/db, unix:///path?db=0, \
         redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/master/db \
         (rediss for TLS)"
    )]
    Url,
    /// It is a URL, but this part of it is wrong.
    #[error("the redis url has a wrong part: {0}")]
    Part(String),
    /// The password has a character that ends the login in a URL.
    #[error(
        "the login of the redis url has a `/`, `?` or `#`: write `%2F`, `%3F` or `%23`, or give the password by \
         `redis_password_file` or HOSTLER_REDIS_PASSWORD"
    )]
    RawPassword,
    /// An unknown query parameter.
    #[error("the redis url has an unknown parameter `{name}`: known are {known}")]
    Parameter {
        /// Its name.
        name: String,
        /// The known ones.
        known: &'static str,
    },
    /// TLS files without TLS.
    #[error("tls files are given, but the redis url is not rediss://")]
    NoTls,
    /// A login for Sentinels without Sentinels.
    #[error("a login for Sentinels is given, but the redis url is not redis+sentinel://")]
    NoSentinels,
}

const FRAGMENT: &str = "a fragment (#...) is not supported; certificates are always checked";
const TCP_PARAMETERS: &[&str] = &["protocol"];
const UNIX_PARAMETERS: &[&str] = &["db", "user", "pass", "protocol"];

impl Target {
    /// Parse `redis://[user[:password]@]host[:port][/db][?protocol=resp3]`, the same with
    /// `rediss://`, or `unix:///path[?db=n&user=u&pass=p&protocol=resp3]` (also `redis+unix://`);
    /// `redis+cluster://[user[:password]@]host[:port],host[:port]` for a cluster,
    /// `redis+sentinel://[user[:password]@]host[:port],host[:port]/master[/db]` for a primary that
    /// Sentinels watch (the user is that of Redis); both also with `rediss+`.
    ///
    /// # Errors
    /// [`TargetError`] names the wrong part, without showing it.
    pub fn parse(url: &str, password: PasswordSource, tls: TlsFiles) -> Result<Self, TargetError> {
        let mut target = match Several::split(url)? {
            None => Self::parse_one(url, password, tls)?,
            Some(several) => several.target(password, tls)?,
        };
        let has_tls_files = target.tls.ca.is_some() || target.tls.client.is_some();
        if has_tls_files && !target.is_tls() {
            return Err(TargetError::NoTls);
        }
        if target.database < 0 {
            return Err(part("a database number is 0 or more"));
        }
        if target.username.as_deref() == Some("") {
            target.username = None;
        }
        Ok(target)
    }

    /// The same with a login for the Sentinels.
    ///
    /// # Errors
    /// [`TargetError::NoSentinels`].
    pub fn with_sentinel_login(self, login: SentinelLogin) -> Result<Self, TargetError> {
        if login != SentinelLogin::default() && !matches!(self.servers, Servers::Sentinel { .. }) {
            return Err(TargetError::NoSentinels);
        }
        Ok(Self {
            sentinel_login: login,
            ..self
        })
    }

    fn parse_one(url: &str, password: PasswordSource, tls: TlsFiles) -> Result<Self, TargetError> {
        // A path to a socket may have an `@`.
        if let Some((scheme, rest)) = url.split_once("://")
            && !scheme.ends_with("unix")
        {
            refuse_raw_password(rest)?;
        }
        let parsed = redis::parse_redis_url(url).ok_or(TargetError::Url)?;
        if parsed.fragment().is_some() {
            return Err(part(FRAGMENT));
        }
        let unix = parsed.scheme().ends_with("unix");
        let (allowed, known) = if unix {
            (UNIX_PARAMETERS, "db, user, pass, protocol")
        } else {
            (TCP_PARAMETERS, "protocol")
        };
        for (name, _) in parsed.query_pairs() {
            if !allowed.contains(&name.as_ref()) {
                return Err(TargetError::Parameter {
                    name: name.chars().take(32).collect(),
                    known,
                });
            }
        }
        let info = parsed.into_connection_info().map_err(|error| {
            // The category only: the detail may repeat what was given.
            part(&(error.category().to_owned() + error_text(&error).unwrap_or_default()))
        })?;
        let redis = info.redis_settings();
        Ok(Self {
            servers: Servers::One(info.addr().clone()),
            database: redis.db(),
            username: redis.username().map(str::to_owned),
            url_password: redis.password().map(Secret::new),
            password,
            tls,
            resp3: !matches!(redis.protocol(), ProtocolVersion::RESP2),
            sentinel_login: SentinelLogin::default(),
        })
    }

    /// What to reach a Sentinel with: its own login, and no database.
    pub(super) fn of_sentinels(&self) -> Self {
        Self {
            database: 0,
            username: self.sentinel_login.username.clone(),
            url_password: None,
            password: self.sentinel_login.password.clone(),
            ..self.clone()
        }
    }

    /// Host and port, or the socket's path, for errors and logs. Of several servers: all, and the name of
    /// the primary.
    pub fn address(&self) -> String {
        match &self.servers {
            Servers::One(address) => shown(address),
            Servers::Cluster(nodes) => all_shown(nodes),
            Servers::Sentinel { sentinels, master } => {
                format!("{}/{master}", all_shown(sentinels))
            }
        }
    }

    /// The URL, without user and password.
    pub fn url(&self) -> String {
        let tls = if self.is_tls() { "s" } else { "" };
        match &self.servers {
            Servers::One(ConnectionAddr::Unix(path)) => unix_url(path, self.database),
            Servers::One(address) => {
                format!("redis{tls}://{}/{}", shown(address), self.database)
            }
            Servers::Cluster(_) => format!("redis{tls}+cluster://{}", self.address()),
            Servers::Sentinel { .. } => {
                format!("redis{tls}+sentinel://{}/{}", self.address(), self.database)
            }
        }
    }

    /// Whether connections to it are encrypted.
    pub(super) fn is_tls(&self) -> bool {
        let first = match &self.servers {
            Servers::One(address) => Some(address),
            Servers::Cluster(several) => several.first(),
            Servers::Sentinel { sentinels, .. } => sentinels.first(),
        };
        matches!(first, Some(ConnectionAddr::TcpTls { .. }))
    }

    /// The password; a file is read again at every connect, so that it can be changed.
    ///
    /// # Errors
    /// `File`: it cannot be read, or is not UTF-8.
    pub fn password(&self) -> Result<Option<Secret>, Error> {
        match &self.password {
            PasswordSource::Url => Ok(self.url_password.clone()),
            PasswordSource::Given(secret) => Ok(Some(secret.clone())),
            PasswordSource::File(path) => {
                const WHAT: &str = "password file";
                let bytes = read(WHAT, path)?;
                let text = String::from_utf8(bytes);
                let text = text.map_err(|_| unusable(WHAT, path, &"it is not UTF-8"))?;
                Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
            }
        }
    }

    /// The settings of TLS; files are read again at every connect, so that they can be changed.
    pub(super) fn certificates(&self) -> Result<Arc<ClientConfig>, Error> {
        let tls = &self.tls;
        let mut roots = RootCertStore::empty();
        match &tls.ca {
            Some(path) => {
                const WHAT: &str = "ca certificate";
                for certificate in chain(WHAT, path)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| unusable(WHAT, path, &error))?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = versions.map_err(|error| Error::Connection {
            target: self.address(),
            detail: error.to_string(),
        })?;
        let builder = builder.with_root_certificates(roots);
        let config = match &tls.client {
            Some((cert, key)) => {
                const WHAT: &str = "client key";
                let chain = chain("client certificate", cert)?;
                let bytes = read(WHAT, key)?;
                if is_encrypted(&bytes) {
                    return Err(unusable(WHAT, key, &ENCRYPTED_KEY));
                }
                let secret = PrivateKeyDer::from_pem_slice(&bytes);
                let secret = secret.map_err(|error| unusable(WHAT, key, &error))?;
                let config = builder.with_client_auth_cert(chain, secret);
                config.map_err(|error| unusable(WHAT, key, &error))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}

/// Host and port, or the socket's path.
pub(super) fn shown(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            // An IPv6 address.
            match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            }
        }
        ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
        // There is no other way to give an address.
        other => other.to_string(),
    }
}

fn all_shown(addresses: &[ConnectionAddr]) -> String {
    addresses.iter().map(shown).collect::<Vec<_>>().join(",")
}

/// A login ends at an `@`. One behind `/`, `?` or `#` means that the password has such a character: as it stands, it
/// ends the login, and the rest of the password counts as a name of a server, a database or a parameter.
fn refuse_raw_password(rest: &str) -> Result<(), TargetError> {
    let end = rest.find(['/', '?', '#']);
    match end.is_some_and(|end| rest[end..].contains('@')) {
        true => Err(TargetError::RawPassword),
        false => Ok(()),
    }
}

fn part(detail: &str) -> TargetError {
    TargetError::Part(detail.to_owned())
}

/// The most servers that a URL names.
const SERVERS_MAX: usize = 64;
const SENTINEL_PORT: u16 = 26379;

/// The parts of a URL that names several servers.
struct Several<'a> {
    is_cluster: bool,
    /// `redis` or `rediss`.
    scheme: &'a str,
    /// With the `@`, or empty.
    login: &'a str,
    servers: Vec<&'a str>,
    /// Behind the servers, without the first slash.
    path: &'a str,
    /// With the question mark, or empty.
    query: &'a str,
}

impl<'a> Several<'a> {
    /// `None` if it names one server.
    fn split(url: &'a str) -> Result<Option<Self>, TargetError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(None);
        };
        let (scheme, is_cluster) = match scheme.split_once('+') {
            Some((scheme @ ("redis" | "rediss"), "cluster")) => (scheme, true),
            Some((scheme @ ("redis" | "rediss"), "sentinel")) => (scheme, false),
            Some((_, "unix")) | None => return Ok(None),
            Some(_) => return Err(TargetError::Url),
        };
        refuse_raw_password(rest)?;
        if rest.contains('#') {
            return Err(part(FRAGMENT));
        }
        let at = rest.find('?').unwrap_or(rest.len());
        let (rest, query) = rest.split_at(at);
        // The login ends at the last `@` before the path.
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, servers) = authority.split_at(at);
        let servers: Vec<&str> = servers.split(',').collect();
        if servers.iter().any(|server| server.is_empty()) {
            return Err(part("a server between two commas has no name"));
        }
        if servers.len() > SERVERS_MAX {
            return Err(part("more than 64 servers"));
        }
        Ok(Some(Self {
            is_cluster,
            scheme,
            login,
            servers,
            path,
            query,
        }))
    }

    fn target(self, password: PasswordSource, tls: TlsFiles) -> Result<Target, TargetError> {
        let path = self.path.trim_end_matches('/');
        let (master, database) = match self.is_cluster {
            true if !matches!(path, "" | "0") => {
                return Err(part(
                    "a cluster has no databases but 0: leave the number out",
                ));
            }
            true => ("", "0"),
            false => path.split_once('/').unwrap_or((path, "0")),
        };
        if !self.is_cluster && master.is_empty() {
            return Err(part(
                "the name of the primary is missing: redis+sentinel://host:26379/mymaster",
            ));
        }
        if database.contains('/') {
            return Err(part("there is something behind the database number"));
        }
        let mut addresses = Vec::with_capacity(self.servers.len());
        let mut first = None;
        for server in &self.servers {
            let (scheme, login, query) = (self.scheme, self.login, self.query);
            let port = match self.is_cluster || has_port(server) {
                true => String::new(),
                false => format!(":{SENTINEL_PORT}"),
            };
            let url = format!("{scheme}://{login}{server}{port}/{database}{query}");
            let one = Target::parse_one(&url, password.clone(), tls.clone())?;
            if let Servers::One(address) = &one.servers {
                addresses.push(address.clone());
            }
            first.get_or_insert(one);
        }
        let servers = match self.is_cluster {
            true => Servers::Cluster(addresses),
            false => Servers::Sentinel {
                sentinels: addresses,
                master: master.to_owned(),
            },
        };
        let first = first.ok_or(TargetError::Url)?;
        Ok(Target { servers, ..first })
    }
}

/// Whether a port follows the name of a server; an IPv6 address has colons in brackets.
fn has_port(server: &str) -> bool {
    let end = server.rsplit(']').next();
    end.is_some_and(|end| end.contains(':'))
}

/// `unix://` and the path, percent-encoded where a URL needs it.
pub fn unix_url(socket: &Path, database: i64) -> String {
    let mut url = String::from("unix://");
    for &byte in socket.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    if database != 0 {
        url.push_str(&format!("?db={database}"));
    }
    url
}

/// The certificates of a PEM file, at least one.
fn chain(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(what, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| unusable(what, path, &error))?;
    if chain.is_empty() {
        return Err(unusable(what, path, &"it has no PEM certificate"));
    }
    Ok(chain)
}

/// Whether a password protects this key, in one of the two forms of PEM.
fn is_encrypted(key: &[u8]) -> bool {
    let text = String::from_utf8_lossy(key);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn unusable(what: &'static str, path: &Path, error: &impl fmt::Display) -> Error {
    Error::File {
        what,
        path: path.display().to_string(),
        detail: error.to_string(),
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| unusable(what, path, &error))
}

/// The library's text about a wrong part, if it is constant.
fn error_text(error: &redis::RedisError) -> Option<&'static str> {
    let text = error.to_string();
    [
        "Missing hostname",
        "Missing path",
        "Invalid database number",
        "Invalid protocol version",
        "Cannot connect to a wildcard address",
        "Username is not valid UTF-8 string",
        "Password is not valid UTF-8 string",
    ]
    .into_iter()
    .find(|known| text.contains(known))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.is_tls() { "s" } else { "" };
        let scheme = match &self.servers {
            Servers::One(ConnectionAddr::Unix(_)) => String::new(),
            Servers::One(_) => format!("redis{tls}://"),
            Servers::Cluster(_) => return f.write_str(&self.url()),
            Servers::Sentinel { .. } => format!("redis{tls}+sentinel://"),
        };
        write!(f, "{scheme}{} db {}", self.address(), self.database)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.address())
            .field("database", &self.database)
            .field("resp3", &self.resp3)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn parse(url: &str) -> Result<Target, TargetError> {
        Target::parse(url, PasswordSource::Url, TlsFiles::default())
    }

    #[test]
    fn every_kind_of_url() {
        let tcp = parse("redis://bob:s3cret@example.net:7000/3?protocol=resp3").unwrap();
        assert_eq!(tcp.address(), "example.net:7000");
        assert_eq!((tcp.database, tcp.resp3), (3, true));
        assert_eq!(tcp.username.as_deref(), Some("bob"));
        assert_eq!(tcp.url_password, Some(Secret::new("s3cret")));
        let unix = parse("unix:///run/redis.sock?db=2&pass=s3cret").unwrap();
        assert_eq!(unix.address(), "unix:/run/redis.sock");
        assert_eq!(unix.database, 2);
        assert!(unix.url_password.is_some());
        assert_eq!(
            parse("redis+unix:///run/redis.sock").unwrap().to_string(),
            "unix:/run/redis.sock db 0"
        );
        assert_eq!(
            parse("rediss://example.net").unwrap().to_string(),
            "rediss://example.net:6379 db 0"
        );
    }

    #[test]
    fn a_cluster_and_sentinels_are_named_by_several_servers() {
        let cluster = parse("redis+cluster://bob:s3cret@a:7000,b,[::1]:7002").unwrap();
        assert_eq!(cluster.address(), "a:7000,b:6379,[::1]:7002");
        assert!(matches!(&cluster.servers, Servers::Cluster(nodes) if nodes.len() == 3));
        assert_eq!(cluster.username.as_deref(), Some("bob"));
        assert_eq!(cluster.url_password, Some(Secret::new("s3cret")));
        let tls = parse("rediss+cluster://a,b/0?protocol=resp3").unwrap();
        assert!(tls.is_tls() && tls.resp3);
        assert_eq!(tls.to_string(), "rediss+cluster://a:6379,b:6379");
        let watched = parse("redis+sentinel://:s3cret@a,b:7001,[::1]/mymaster/3").unwrap();
        assert_eq!(watched.address(), "a:26379,b:7001,[::1]:26379/mymaster");
        assert_eq!((watched.database, watched.username.as_deref()), (3, None));
        assert_eq!(
            watched.url(),
            "redis+sentinel://a:26379,b:7001,[::1]:26379/mymaster/3"
        );
        let login = SentinelLogin {
            username: Some("watcher".to_owned()),
            password: PasswordSource::Given(Secret::new("other")),
        };
        let with_login = watched.with_sentinel_login(login.clone()).unwrap();
        let to_sentinels = with_login.of_sentinels();
        assert_eq!(to_sentinels.username.as_deref(), Some("watcher"));
        assert_eq!(
            (to_sentinels.database, to_sentinels.url_password),
            (0, None)
        );
        let error = parse("redis://a").unwrap().with_sentinel_login(login);
        assert!(matches!(error, Err(TargetError::NoSentinels)));
    }

    #[test]
    fn the_url_of_a_target_leads_to_the_same_place_and_has_no_login() {
        for (given, shown) in [
            (
                "redis://bob:s3cret@example.net",
                "redis://example.net:6379/0",
            ),
            ("rediss://example.net:7000/3", "rediss://example.net:7000/3"),
            ("redis://[::1]:7000", "redis://[::1]:7000/0"),
            (
                "unix:///run/a%20b.sock?pass=s3cret",
                "unix:///run/a%20b.sock",
            ),
            ("unix:///run/r.sock?db=2", "unix:///run/r.sock?db=2"),
            (
                "redis+cluster://bob:s3cret@a,b:7000",
                "redis+cluster://a:6379,b:7000",
            ),
            (
                "rediss+sentinel://:s3cret@a/m",
                "rediss+sentinel://a:26379/m/0",
            ),
        ] {
            let target = parse(given).unwrap();
            assert_eq!(target.url(), shown);
            let again = parse(&target.url()).unwrap();
            assert_eq!(again.to_string(), target.to_string());
        }
    }

    #[test]
    fn any_path_fits_into_a_url() {
        let url = |path| unix_url(Path::new(path), 0);
        assert_eq!(url(OsStr::new("/a/b-c_d.sock")), "unix:///a/b-c_d.sock");
        let odd = OsStr::from_bytes(b"/a b/#?%\xff");
        assert_eq!(url(odd), "unix:///a%20b/%23%3F%25%FF");
    }

    #[test]
    fn wrong_urls_are_named_without_being_shown() {
        for (url, part) in [
            ("http://s3cret@example.net", "is not valid"),
            ("s3cret", "is not valid"),
            ("redis://:s3cret@example.net/x", "Invalid database number"),
            ("redis://:s3cret@example.net/-1", "0 or more"),
            ("redis://:s3cret@example.net?db=1", "unknown parameter `db`"),
            (
                "redis://:s3cret@example.net?protocol=s3cret",
                "protocol version",
            ),
            ("rediss://:s3cret@example.net#insecure", "fragment"),
            ("redis+cluster://:s3cret@a,,b", "between two commas"),
            ("redis+cluster://:s3cret@a,b/1", "no databases but 0"),
            ("redis+cluster://:s3cret@a#x", "fragment"),
            ("redis+cluster://:s3cret@a:x", "is not valid"),
            ("redis+cluster://:s3cret@a?db=1", "unknown parameter `db`"),
            (
                "redis+sentinel://:s3cret@a",
                "name of the primary is missing",
            ),
            ("redis+sentinel://:s3cret@a/m/x", "Invalid database number"),
            ("redis+sentinel://:s3cret@a/m/-1", "0 or more"),
            ("redis+sentinel://:s3cret@a/m/1/2", "behind the database"),
            ("redis+shards://:s3cret@a", "redis+cluster://host:port"),
            ("redis://:s3cret#x@example.net", "write `%2F`"),
            ("redis://:s3cret/x@example.net/1", "write `%2F`"),
            ("rediss://bob:s3cret?x@example.net", "write `%2F`"),
            ("redis+cluster://:s3cret#x@a,b", "write `%2F`"),
            ("redis+sentinel://:s3cret/x@a,b/m", "write `%2F`"),
        ] {
            let error = parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(part), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let target = Target::parse(
            "rediss://bob:s3cret@example.net:7000",
            PasswordSource::Given(Secret::new("s3cret")),
            TlsFiles::default(),
        )
        .unwrap();
        let shown = format!("{target} {target:?} {:?}", target.password);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(!shown.contains("bob"), "{shown}");
    }

    #[test]
    fn tls_files_need_a_rediss_url() {
        let tls = TlsFiles {
            ca: Some("/ca.pem".into()),
            client: None,
        };
        let error = Target::parse("redis://h", PasswordSource::Url, tls).unwrap_err();
        assert!(matches!(error, TargetError::NoTls));
    }
}
