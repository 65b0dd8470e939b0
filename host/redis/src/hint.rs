//! What to do about an error of Redis: one table for every place that shows one.
//!
//! An error is known by its code and a part of its text, whichever command met it. `tests/it/redis/hints.rs` has tests on
//! real servers; codes that a server rarely answers are in the tests below.

use super::error::Error;

/// An error, its cause, and what to do.
struct Row {
    /// The code: see [`Error::code`].
    code: &'static str,
    /// Parts of the text, one of which it has; empty = any text.
    texts: &'static [&'static str],
    /// The cause, and what to do.
    hint: &'static str,
}

const fn row(code: &'static str, texts: &'static [&'static str], hint: &'static str) -> Row {
    Row { code, texts, hint }
}

/// The server answered with something that is not TLS.
pub(super) const TLS_QUESTION: &str = "does this port speak TLS?";
/// The server answered in TLS, or hung up on what is not TLS.
pub(super) const PLAIN_QUESTION: &str = "does this port want TLS?";
/// A private key that a password protects.
pub(super) const ENCRYPTED_KEY: &str = "it is encrypted";

/// The errors. The first row that matches counts.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("connection", &["UnknownIssuer", "BadSignature", "InvalidSignature"],
        "no trusted authority has signed the server's certificate: name the authority that has, with `redis_ca`"),
    row("connection", &["CaUsedAsEndEntity"],
        "the server shows the certificate of an authority: give it one of its own, which that authority has \
         signed, and name the authority with `redis_ca`"),
    row("connection", &["not valid for name", "NotValidForName"],
        "the server's certificate has other names: write one of them in the URL, or give the server a \
         certificate with this name"),
    row("connection", &["certificate expired", "Expired", "not valid yet", "NotValidYet"],
        "renew the server's certificate, or correct the clock of this machine"),
    row("connection", &["CertificateRequired"],
        "the server wants a certificate of its clients: give `redis_cert` and `redis_key`"),
    row("connection", &["UnknownCA", "UnknownCa", "BadCertificate", "DecryptError", "CertificateUnknown"],
        "the server does not trust the certificate of this client: let an authority of its `tls-ca-cert-file` \
         sign `redis_cert`"),
    row("connection", &[TLS_QUESTION],
        "the server does not speak TLS there: name its `tls-port`, or write `redis://` instead of `rediss://`"),
    row("connection", &[PLAIN_QUESTION],
        "if the server speaks TLS there, write `rediss://` instead of `redis://`"),
    row("connection", &["lookup", "no address"],
        "no server has this name: correct the redis url"),
    row("connection", &[], START),
    row("deadline", &[], START),
    row("file", &[ENCRYPTED_KEY],
        "hostler asks for no password: decrypt the key (`openssl pkey -in KEY -out FILE`), and protect the file"),
    row("file", &[], "correct the path, the file or its permissions"),
    row("LOADING", &[], WAIT),
    row("MASTERDOWN", &[], WAIT),
    row("CLUSTERDOWN", &[],
        "a part of the cluster's slots has no node: see `CLUSTER INFO`, and start the nodes that are away"),
    row("READONLY", &[],
        "this server is a replica: name the primary, or the Sentinels (`redis+sentinel://`)"),
    row("MISCONF", &[],
        "Redis cannot save its data, and takes no writes until it can: see its log, and the space and the rights \
         of its `dir`"),
    row("NOREPLICAS", &[],
        "fewer replicas are connected than `min-replicas-to-write` wants: start them, or lower it"),
    row("BUSY", &[],
        "a script of a client runs for too long: `SCRIPT KILL` (or `FUNCTION KILL`) ends it"),
    row("OOM", &[],
        "Redis has no memory left: raise `maxmemory`, or delete data"),
    row("MAXCLIENTS", &[],
        "Redis has too many connections: raise `maxclients`, or close some"),
    row("WRONGPASS", &[], LOGIN),
    row("NOAUTH", &[],
        "the server wants a login: give `redis_password_file`, or the variable HOSTLER_REDIS_PASSWORD"),
    row("CROSSSLOT", &[],
        "the keys of a queue must be in one slot of the cluster: begin the other key with the queue's in braces, \
         such as `{jobs}:claims` for the list `jobs`"),
    row("NOGROUP", &[], "is the name right? has a host ever run on it?"),
    row("WRONGTYPE", &[], "name another key, or rename that one"),
    row("ERR", &["DB index is out of range", "SELECT is not allowed"],
        "correct the database of the redis url"),
    row("ERR", &["login refused", "the server has no password"], LOGIN),
];

const START: &str = "start it, correct the redis url, or give it time with --wait-redis";
const WAIT: &str = "wait until it is ready, or give it time with --wait-redis";
const LOGIN: &str = "correct the user or the password: in the redis url, in `redis_password_file`, or in the \
                     variable HOSTLER_REDIS_PASSWORD";

impl Error {
    /// The error, and what to do about it.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }

    /// The cause, and what to do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        let (code, text) = (self.code(), self.to_string());
        if let Some(command) = self.unknown_command() {
            return Some(unknown(&command));
        }
        if let Some(rule) = self.missing_rule() {
            return Some(format!("grant the user of hostler {rule}"));
        }
        let fits = |row: &&Row| {
            let mut parts = row.texts.iter();
            row.code == code && (row.texts.is_empty() || parts.any(|part| text.contains(part)))
        };
        let row = ROWS.iter().find(fits)?;
        Some(row.hint.to_owned())
    }

    /// The command that the server does not know, if that is the error.
    pub fn unknown_command(&self) -> Option<String> {
        let Self::Configuration {
            command,
            code,
            detail,
        } = self
        else {
            return None;
        };
        // A script does not say which command it was.
        let in_script = detail.contains("Unknown Redis command called from script")
            || detail.contains("Unknown command called from");
        if code == "ERR" && in_script {
            return Some("a command of a script".to_owned());
        }
        let is_unknown = code == "ERR" && detail.to_lowercase().starts_with("unknown command");
        is_unknown.then(|| (*command).to_owned())
    }

    /// The right that the user lacks, as text.
    fn missing_rule(&self) -> Option<String> {
        let Self::Configuration { code, detail, .. } = self else {
            return None;
        };
        if code != "NOPERM" {
            return None;
        }
        // `... has no permissions to run the 'hgetall' command`
        let named = detail.split_once("run the '");
        let named = named.and_then(|(_, rest)| rest.split_once('\''));
        Some(match named {
            Some((command, _)) => format!("`+{command}`"),
            None => "its keys and commands: docs/security.md names them".to_owned(),
        })
    }
}

/// What to do if the server does not know a command.
pub fn unknown(command: &str) -> String {
    match command {
        "SSUBSCRIBE" | "SPUBLISH" => {
            "serve a plain channel, or a server that has sharded channels".to_owned()
        }
        _ => "the server has renamed or disabled this command (`rename-command`), or has none: hostler needs it \
              by its own name"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_may_pass_has_a_hint() {
        use crate::error::UNAVAILABLE;
        for code in UNAVAILABLE {
            let error = Error::refused("XADD", code, "x");
            // The commands of a cluster that moves its slots pass by themselves.
            let passes = matches!(
                code,
                "MOVED" | "ASK" | "TRYAGAIN" | "UNBLOCKED" | "NOSCRIPT" | "NOTREADY"
            );
            assert_eq!(error.hint().is_none(), passes, "{code}");
        }
    }

    #[test]
    fn the_first_row_with_the_code_and_a_part_of_the_text_counts() {
        let hint = |code: &str, detail: &str| Error::refused("EVALSHA", code, detail).hint();
        for (code, detail, part) in [
            (
                "ERR",
                "unknown command 'XCLAIM', with args beginning with: 'a'",
                "rename-command",
            ),
            (
                "ERR",
                "Unknown Redis command called from script script: x",
                "rename-command",
            ),
            (
                "NOPERM",
                "User bob has no permissions to run the 'hgetall' command",
                "`+hgetall`",
            ),
            (
                "NOPERM",
                "No permissions to access a key",
                "docs/security.md",
            ),
            (
                "WRONGPASS",
                "invalid username-password pair or user is disabled.",
                "password",
            ),
            (
                "CROSSSLOT",
                "Keys in request don't hash to the same slot",
                "{jobs}:claims",
            ),
            ("LOADING", "Redis is loading the dataset in memory", "wait"),
            ("MASTERDOWN", "Link with MASTER is down", "wait"),
            ("CLUSTERDOWN", "The cluster is down", "`CLUSTER INFO`"),
            (
                "MAXCLIENTS",
                "max number of clients reached",
                "`maxclients`",
            ),
            ("OOM", "command not allowed", "`maxmemory`"),
        ] {
            let found = hint(code, detail);
            assert!(
                found.as_deref().is_some_and(|h| h.contains(part)),
                "{code}: {found:?}"
            );
        }
        assert_eq!(hint("ERR", "something else"), None);
        let sharded = Error::refused("SSUBSCRIBE", "ERR", "unknown command 'SSUBSCRIBE'");
        assert!(
            sharded
                .hint()
                .is_some_and(|hint| hint.contains("sharded channels"))
        );
    }
}
