//! The scene of the tests of grants outside the sandbox: the guest `outbound`, with grants as an
//! operator writes them.

use std::pin::pin;
use std::time::Duration;

use hostler::config::{Collected, Input};
use hostler::delivery::message::Message;
use hostler::delivery::outcome::Outcome;
use hostler::sandbox::Settings;
use hostler_tests::rig::{Rig, message};
use hostler_tests::web::Web;
use tokio::time::sleep;

/// What the guest needs so that it loads, whatever else a test grants.
const NEEDED: &str = r#"
[[grant.http]]
host = "needed.invalid"

[grant.secret]
needed = { variable = "NEEDED", expose = true }
"#;

/// The settings of a configuration file with these grants.
pub(crate) fn settings(toml: &str) -> Settings {
    try_settings(toml).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The same, or all problems.
pub(crate) fn try_settings(toml: &str) -> Result<Settings, String> {
    let variables = [("NEEDED", "needed"), ("STRIPE", "s3cr3t-of-stripe")];
    let input = Input {
        file: Some("orders.toml".as_ref()),
        file_text: Some(toml),
        variables: variables.map(|(n, v)| (n.into(), v.into())).to_vec(),
        ..Input::default()
    };
    Collected::new(input)
        .sandbox()
        .map_err(|error| error.to_string())
}

/// The guest with these grants, and those that it needs.
pub(crate) fn rig(toml: &str) -> Rig {
    let has_secrets = toml.contains("[grant.secret]");
    let needed = match has_secrets {
        true => NEEDED.split("[grant.secret]").next().unwrap(),
        false => NEEDED,
    };
    Rig::guest("outbound", &settings(&format!("{toml}\n{needed}")))
}

/// A rule for a server of the test, under the name `api.test`.
pub(crate) fn rule(web: &Web, more: &str) -> String {
    let (ip, port) = (web.ip(), web.port());
    format!(
        "[[grant.http]]\nscheme = \"http\"\nhost = \"api.test\"\nport = {port}\naddress = \"{ip}\"\n{more}\n"
    )
}

/// The URL of a path of the server, under that name.
pub(crate) fn url(web: &Web, path: &str) -> String {
    format!("http://api.test:{}{path}", web.port())
}

/// A message with headers.
pub(crate) fn with_headers(body: &str, headers: &[(&str, &str)]) -> Message {
    let mut message = message(body);
    for (name, value) in headers {
        message.headers.set(name, value.as_bytes().to_vec());
    }
    message
}

/// The drop reason of an outcome.
pub(crate) fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Drop(Some(reason)) => reason,
        other => format!("{other:?}"),
    }
}

/// Bytes of this process in memory.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// How much more memory this process had at most while this ran, in bytes.
pub(crate) async fn grown<T>(work: impl Future<Output = T>) -> (u64, T) {
    let (before, mut most): (u64, u64) = (resident(), 0);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (most.saturating_sub(before), done),
            () = sleep(Duration::from_millis(5)) => most = most.max(resident()),
        }
    }
}
