//! How to reach Redis.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::choices::Durability;
use crate::config::secret::RedisAt;
use crate::config::settings::section;
use crate::redis::target::Secret;

section! { "Redis";
    /// The URL of Redis: `redis://host:6379/0`, `rediss://...` (TLS), `unix:///path/to.sock`,
    /// `redis+cluster://host:6379,host:6379`, `redis+sentinel://host:26379,host:26379/mymaster/0`, or
    /// `embedded` for a private server with its data under `.hostler/`.
    REDIS: RedisAt = ("redis", "URL").unset("required");

    /// A file that holds the password. White space at its end is ignored.
    REDIS_PASSWORD_FILE: PathBuf = ("redis_password_file", "FILE")
        .unset("no password, or the one in the URL");

    /// The password. Only a variable may hold it.
    REDIS_PASSWORD: Secret = ("redis_password", "PASSWORD")
        .unset("no password, or the one in the URL")
        .variable_only();

    /// The user at the Sentinels: they have users of their own.
    REDIS_SENTINEL_USER: String = ("redis_sentinel_user", "USER").unset("the default user");

    /// A file that holds the password at the Sentinels. White space at its end is ignored.
    REDIS_SENTINEL_PASSWORD_FILE: PathBuf = ("redis_sentinel_password_file", "FILE")
        .unset("no password at the Sentinels");

    /// The password at the Sentinels. Only a variable may hold it.
    REDIS_SENTINEL_PASSWORD: Secret = ("redis_sentinel_password", "PASSWORD")
        .unset("no password at the Sentinels")
        .variable_only();

    /// A file with the certificates (PEM) of the authorities that may sign the certificate of the server.
    REDIS_CA: PathBuf = ("redis_ca", "FILE").unset("the public authorities");

    /// A file with the certificate (PEM) that the host shows to the server.
    REDIS_CERT: PathBuf = ("redis_cert", "FILE").unset("no certificate").only_with(&REDIS_KEY);

    /// A file with the private key (PEM) of that certificate.
    REDIS_KEY: PathBuf = ("redis_key", "FILE").unset("no key").only_with(&REDIS_CERT);

    /// The servers that must have a write before it counts as done: published messages, acknowledgements with
    /// effects, dead letters. `primary`: the server that took it. `replica`: also one of its replicas, so that a
    /// failover does not lose it; a write that no replica confirms within a second is unknown, and is tried again.
    DURABILITY: Durability = ("durability", "WHO").default("primary");

    /// How long to wait for Redis at the start. Then the host exits with code 69.
    WAIT_REDIS: Duration = ("wait_redis", "DURATION").default("0s");
}
