//! How to reach Redis: URL, password, certificates.

use std::io::Read;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::collect::Collected;
use crate::config::problem::Source;
use crate::config::secret::RedisUrl;
use crate::config::setting::Definition;
use crate::config::setting::Setting;
use crate::config::settings::{process, server, telemetry};
use crate::config::value::RedisAt;
use crate::config::{Redis, Server};
use crate::redis::target::{PasswordSource, Secret, SentinelLogin, Target, TlsFiles};
use crate::regular_file;

/// A password file is one line.
const PASSWORD_MAX: u64 = 4096;
/// A token that is shorter can be guessed.
const TOKEN_MIN: usize = 16;

/// The token for the actions of a dashboard, in this file. The error is for people.
///
/// # Errors
/// It cannot be read, or is too short or too long.
pub fn read_token(file: &Path) -> Result<Secret, String> {
    let mut text = String::new();
    let read = regular_file::open(file)
        .and_then(|file| file.take(PASSWORD_MAX + 1).read_to_string(&mut text));
    let token = text.trim_end();
    let what = match read {
        Err(error) => format!("cannot be read: {error}"),
        Ok(_) if text.len() as u64 > PASSWORD_MAX => format!("is larger than {PASSWORD_MAX} bytes"),
        Ok(_) if token.len() < TOKEN_MIN => {
            format!("holds fewer than {TOKEN_MIN} bytes: `openssl rand -hex 16` makes a token")
        }
        Ok(_) => return Ok(Secret::new(token)),
    };
    Err(format!("{} {what}", file.display()))
}

/// The headers of a file, one in a line. No error repeats a value.
fn read_headers(file: &Path) -> Result<HeaderMap, String> {
    let mut text = String::new();
    let read = regular_file::open(file)
        .and_then(|file| file.take(PASSWORD_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > PASSWORD_MAX {
        return Err(format!("is larger than {PASSWORD_MAX} bytes"));
    }
    let mut headers = HeaderMap::new();
    let lines = text.lines().enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let parse = || {
            let (name, value) = line.split_once(':')?;
            let name = HeaderName::try_from(name.trim()).ok()?;
            let mut value = HeaderValue::try_from(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        };
        let line = number + 1;
        let (name, value) = parse().ok_or_else(|| format!("has no header in line {line}"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

impl Collected {
    pub(super) fn check_redis(&mut self) -> Option<Redis> {
        self.check_password();
        let ca = self.readable(&server::REDIS_CA);
        let cert = self.readable(&server::REDIS_CERT);
        let key = self.readable(&server::REDIS_KEY);
        self.check(None, &[&server::SECTION]);
        let tls = TlsFiles {
            ca,
            client: cert.zip(key),
        };
        let password = self.password(&server::REDIS_PASSWORD, &server::REDIS_PASSWORD_FILE);
        let sentinel_login = SentinelLogin {
            username: self.value(&server::REDIS_SENTINEL_USER),
            password: self.password(
                &server::REDIS_SENTINEL_PASSWORD,
                &server::REDIS_SENTINEL_PASSWORD_FILE,
            ),
        };
        let at = self.value(&server::REDIS);
        if at.is_none() && self.source(&server::REDIS).is_none() {
            let hint =
                "give `--redis redis://host:6379`, or `--redis embedded` for a private server";
            self.conflict(None, "`redis` is not set", hint);
        }
        let server = match at? {
            RedisAt::Embedded => {
                // The embedded server is reached by a socket that only its user can open.
                let unused = [
                    &server::REDIS_PASSWORD_FILE,
                    &server::REDIS_SENTINEL_PASSWORD_FILE,
                    &server::REDIS_CA,
                    &server::REDIS_CERT,
                ];
                for setting in unused {
                    let Some(source) = self.source(setting).cloned() else {
                        continue;
                    };
                    let what = format!("`{}` means nothing to the embedded server", setting.key());
                    let hint = "leave it out, or name a server with `redis`";
                    self.conflict(Some(&source), what, hint);
                }
                Server::Embedded
            }
            RedisAt::Url(url) => {
                let target = self.target(&url, password, tls, sentinel_login)?;
                Server::At(Box::new(target))
            }
        };
        Some(Redis {
            server,
            wait: self.or_default(&server::WAIT_REDIS),
            durability: self.or_default(&server::DURABILITY),
        })
    }

    fn target(
        &mut self,
        url: &RedisUrl,
        password: PasswordSource,
        tls: TlsFiles,
        sentinel_login: SentinelLogin,
    ) -> Option<Target> {
        let parsed = Target::parse(url.expose(), password, tls);
        match parsed.and_then(|target| target.with_sentinel_login(sentinel_login)) {
            Ok(target) => Some(target),
            Err(error) => {
                self.bad_value(&server::REDIS, error.to_string());
                None
            }
        }
    }

    fn check_password(&mut self) {
        let in_url =
            matches!(self.value(&server::REDIS), Some(RedisAt::Url(url)) if url.has_password());
        let sources = [
            self.source(&server::REDIS_PASSWORD_FILE).cloned(),
            self.source(&server::REDIS_PASSWORD).cloned(),
        ];
        let mut given: Vec<Source> = sources.into_iter().flatten().collect();
        let url_source = self.source(&server::REDIS).filter(|_| in_url).cloned();
        if let Some(source @ Source::Flag(_)) = &url_source {
            let what = "every user of this machine can read the password in the URL (`ps`)";
            let hint = "use `--redis-password-file`, or the variable HOSTLER_REDIS_PASSWORD";
            self.warn(source.clone(), what.to_owned(), Some(hint));
        }
        given.extend(url_source);
        self.check_single("passwords", &given);
        let sources = [
            self.source(&server::REDIS_SENTINEL_PASSWORD_FILE).cloned(),
            self.source(&server::REDIS_SENTINEL_PASSWORD).cloned(),
        ];
        let given: Vec<Source> = sources.into_iter().flatten().collect();
        self.check_single("passwords at the Sentinels", &given);
    }

    fn check_single(&mut self, what: &str, given: &[Source]) {
        if given.len() > 1 {
            let places: Vec<String> = given.iter().map(Source::to_string).collect();
            let what = format!("there are {} {what}: {}", given.len(), places.join(", "));
            self.conflict(None, what, "keep one of them");
        }
    }

    /// The source of the password. A file is read now, to report problems, and again at every connect, so that
    /// a password can be rotated.
    fn password(
        &mut self,
        given: &'static Setting<Secret>,
        in_file: &'static Setting<PathBuf>,
    ) -> PasswordSource {
        if let Some(secret) = self.value(given) {
            return PasswordSource::Given(secret);
        }
        let Some(file) = self.value(in_file) else {
            return PasswordSource::Url;
        };
        let mut text = String::new();
        let what = match regular_file::open(&file)
            .and_then(|file| file.take(PASSWORD_MAX + 1).read_to_string(&mut text))
        {
            Ok(_) if text.len() as u64 > PASSWORD_MAX => {
                Some(format!("is larger than {PASSWORD_MAX} bytes"))
            }
            Ok(_) if text.trim_end().is_empty() => Some("is empty".to_owned()),
            Ok(_) => None,
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        if let Some(what) = what {
            let what = format!("{} {what}", file.display());
            self.bad_value(in_file, what);
        }
        PasswordSource::File(file)
    }

    /// The token in the file of the dashboard. It is read once: a host that starts again reads another one.
    pub(super) fn token_file(&mut self) -> Option<Secret> {
        let file = self.value(&process::UI_TOKEN_FILE)?;
        match read_token(&file) {
            Ok(token) => Some(token),
            Err(what) => {
                self.bad_value(&process::UI_TOKEN_FILE, what);
                None
            }
        }
    }

    /// The headers in the file of the collector. It is read once.
    pub(super) fn headers_file(&mut self) -> Option<HeaderMap> {
        let file = self.value(&telemetry::OTLP_HEADERS_FILE)?;
        match read_headers(&file) {
            Ok(headers) => Some(headers),
            Err(what) => {
                let what = format!("{} {what}", file.display());
                self.bad_value(&telemetry::OTLP_HEADERS_FILE, what);
                None
            }
        }
    }

    /// A file that must exist and be readable.
    pub(super) fn readable(&mut self, setting: &'static Setting<PathBuf>) -> Option<PathBuf> {
        let path = self.value(setting)?;
        if let Err(error) = regular_file::open(&path) {
            let what = format!("{} cannot be read: {error}", path.display());
            self.bad_value(setting, what);
        }
        Some(path)
    }
}
