//! How to reach Redis.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::secret::Secret;
use crate::config::setting::Setting;
use crate::config::settings::Section;
use crate::config::value::RedisAt;

pub(super) static SECTION: Section = Section {
    title: "Redis",
    settings: &[
        &REDIS,
        &REDIS_PASSWORD_FILE,
        &REDIS_PASSWORD,
        &REDIS_CA,
        &REDIS_CERT,
        &REDIS_KEY,
        &WAIT_REDIS,
    ],
};

pub(in crate::config) static REDIS: Setting<RedisAt> = Setting::new(
    "redis",
    "URL",
    "Where Redis is: `redis://host:6379/0`, `rediss://...` (TLS), `unix:///path/to.sock`, or \
     `embedded` for a private server with its data under `.hostler/`.",
)
.unset("required");

pub(in crate::config) static REDIS_PASSWORD_FILE: Setting<PathBuf> = Setting::new(
    "redis_password_file",
    "FILE",
    "A file that holds the password; white space at its end is ignored.",
)
.unset("no password, or the one in the URL");

pub(in crate::config) static REDIS_PASSWORD: Setting<Secret> = Setting::new(
    "redis_password",
    "PASSWORD",
    "The password. Only a variable may hold it.",
)
.unset("no password, or the one in the URL")
.variable_only();

pub(in crate::config) static REDIS_CA: Setting<PathBuf> = Setting::new(
    "redis_ca",
    "FILE",
    "Certificates (PEM) of the authorities that may have signed the server's certificate.",
)
.unset("the public authorities");

pub(in crate::config) static REDIS_CERT: Setting<PathBuf> = Setting::new(
    "redis_cert",
    "FILE",
    "The certificate (PEM) that the host shows to the server.",
)
.unset("none is shown");

pub(in crate::config) static REDIS_KEY: Setting<PathBuf> = Setting::new(
    "redis_key",
    "FILE",
    "The private key (PEM) of that certificate.",
)
.unset("none");

pub(in crate::config) static WAIT_REDIS: Setting<Duration> = Setting::new(
    "wait_redis",
    "DURATION",
    "How long to wait for Redis at start before giving up with exit code 69.",
)
.default("0s");
