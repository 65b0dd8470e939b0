//! How to reach Redis: URL, password, certificates.

use std::io::Read;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::collect::Collected;
use crate::config::problem::Source;
use crate::config::secret::RedisAt;
use crate::config::setting::Definition;
use crate::config::setting::Setting;
use crate::config::settings::server;
use crate::config::{Redis, Server};
use crate::redis::target::{PasswordSource, Secret, SentinelLogin, Target, TlsFiles};
use crate::regular_file;

/// Where a private server keeps its data: in this folder beside the configuration file, or in the working directory.
pub const EMBEDDED_DIR: &str = ".hostler";
/// A password file is one line.
const PASSWORD_MAX: u64 = 4096;
/// A token that is shorter can be guessed.
const TOKEN_MIN: usize = 16;

/// The token for the actions of a dashboard, in this file. The error is for people.
///
/// # Errors
/// It cannot be read, or is too short or too long.
pub fn read_token(file: &Path) -> Result<Secret, String> {
    let text = read_short(file)?;
    match text.trim_end() {
        token if token.len() < TOKEN_MIN => Err(format!(
            "{} holds fewer than {TOKEN_MIN} bytes: `openssl rand -hex 16` makes a token",
            file.display()
        )),
        token => Ok(Secret::new(token)),
    }
}

/// The text of a file that holds a secret. The error is for people.
fn read_short(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = regular_file::open(file)
        .and_then(|file| file.take(PASSWORD_MAX + 1).read_to_string(&mut text));
    let why = match read {
        Err(error) => format!("cannot be read: {error}"),
        Ok(_) if text.len() as u64 > PASSWORD_MAX => format!("is larger than {PASSWORD_MAX} bytes"),
        Ok(_) => return Ok(text),
    };
    Err(format!("{} {why}", file.display()))
}

/// The headers of a file, one in a line. No error repeats a value.
pub(super) fn read_headers(file: &Path) -> Result<HeaderMap, String> {
    let text = read_short(file)?;
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
        let (file, line) = (file.display(), number + 1);
        let (name, value) =
            parse().ok_or_else(|| format!("{file} has no header in line {line}"))?;
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
                // A flag may replace the server of a file, with all that belongs to it.
                let is_file = |source: &Source| matches!(source, Source::File { .. });
                let is_replaced = self
                    .source(&server::REDIS)
                    .is_some_and(|source| !is_file(source));
                for setting in unused {
                    if self
                        .source(setting)
                        .is_some_and(|source| !(is_replaced && is_file(source)))
                    {
                        let key = setting.key();
                        let what = format!("`{key}` means nothing to the embedded server");
                        let hint = "leave it out, or name a server with `redis`";
                        self.conflict(Some(setting), what, hint);
                    }
                }
                let folder = self.folder_of(&server::REDIS).unwrap_or(Path::new(""));
                Server::Embedded(folder.join(EMBEDDED_DIR))
            }
            RedisAt::Url(url) => {
                let target = Target::parse(url.expose(), password, tls);
                let target = target.and_then(|target| target.with_sentinel_login(sentinel_login));
                let target =
                    target.map_err(|error| self.bad_value(&server::REDIS, error.to_string()));
                Server::At(Box::new(target.ok()?))
            }
        };
        Some(Redis {
            server,
            wait: self.or_default(&server::WAIT_REDIS),
            durability: self.or_default(&server::DURABILITY),
        })
    }

    fn check_password(&mut self) {
        let in_url =
            matches!(self.value(&server::REDIS), Some(RedisAt::Url(url)) if url.has_password());
        let url = self.source(&server::REDIS).filter(|_| in_url).cloned();
        if matches!(url, Some(Source::Flag(_))) {
            let what = "every user of this machine can read the password in the URL (`ps`)";
            let hint = "use `--redis-password-file`, or the variable HOSTLER_REDIS_PASSWORD";
            self.warn(&server::REDIS, what.to_owned(), Some(hint));
        }
        let (file, given) = (&server::REDIS_PASSWORD_FILE, &server::REDIS_PASSWORD);
        self.check_single("passwords", [file, given], url);
        let file = &server::REDIS_SENTINEL_PASSWORD_FILE;
        let given = &server::REDIS_SENTINEL_PASSWORD;
        self.check_single("passwords at the Sentinels", [file, given], None);
    }

    fn check_single(&mut self, what: &str, settings: [&dyn Definition; 2], other: Option<Source>) {
        let given = settings.into_iter().filter_map(|s| self.source(s));
        let places: Vec<String> = given.chain(&other).map(Source::to_string).collect();
        if places.len() > 1 {
            let what = format!("there are {} {what}: {}", places.len(), places.join(", "));
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
        self.read(in_file, |file| match read_short(file)?.trim_end() {
            "" => Err(format!("{} is empty", file.display())),
            _ => Ok(()),
        });
        PasswordSource::File(file)
    }

    /// What the file of a setting holds. It is read once: a host that starts again reads it again.
    pub(super) fn read<T>(
        &mut self,
        setting: &'static Setting<PathBuf>,
        read: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Option<T> {
        let read = read(&self.value(setting)?);
        read.map_err(|what| self.bad_value(setting, what)).ok()
    }

    /// A file that must exist and be readable.
    pub(super) fn readable(&mut self, setting: &'static Setting<PathBuf>) -> Option<PathBuf> {
        let path = self.value(setting)?;
        self.read(setting, |path| {
            let opened = regular_file::open(path);
            opened.map_err(|error| format!("{} cannot be read: {error}", path.display()))
        });
        Some(path)
    }
}
