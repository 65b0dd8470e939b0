//! The rights that a user needs, and which of them it lacks.

use redis::{Pipeline, Value, cmd};

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;

/// A command with arguments, and its name in an ACL.
pub(crate) struct Need {
    pub(crate) grant: String,
    command: &'static str,
    words: Vec<String>,
}

impl Need {
    /// The right to send this command with these arguments.
    pub(crate) fn new(command: &'static str, arguments: &[&str]) -> Self {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let grant = words.join("|").to_lowercase();
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        Self {
            grant,
            command,
            words: words.into_iter().chain(arguments).collect(),
        }
    }
}

/// The user, and the rules that it lacks: `+command`, `~key` or `&channel`. `None` if the server does not
/// know, or does not answer.
///
/// # Errors
/// The server does not know a command: it is renamed, or disabled.
pub(crate) async fn lacking(
    link: &Link,
    needs: &[Need],
) -> Result<Option<(String, Vec<String>)>, Error> {
    const COMMAND: &str = "ACL DRYRUN";
    let user = match link.call("ACL WHOAMI", cmd("ACL").arg("WHOAMI")).await {
        Ok(user) => reply::text("ACL WHOAMI", user)?,
        // The right to ask is missing, or the server does not know the command.
        Err(Error::Configuration { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut pipeline = Pipeline::new();
    for need in needs {
        pipeline
            .cmd("ACL")
            .arg("DRYRUN")
            .arg(&user)
            .arg(&need.words);
    }
    let mut lacking: Vec<String> = Vec::new();
    for (need, answer) in needs.iter().zip(link.pipeline(COMMAND, &pipeline).await?) {
        let answer = match answer {
            // `Command 'xclaim' not found`: this server has it by another name, or not at all.
            Value::ServerError(error)
                if error
                    .details()
                    .is_some_and(|text| text.ends_with(" not found")) =>
            {
                return Err(Error::refused(need.command, "ERR", "unknown command"));
            }
            Value::ServerError(_) => return Ok(None),
            answer => reply::text(COMMAND, answer)?,
        };
        let rule = match answer.as_str() {
            "OK" => continue,
            // "... no permissions to access the 'key' key": the key that it names.
            text if text.contains("access the") => {
                let name = text.split('\'').nth(1).unwrap_or_default();
                let is_channel = text.trim_end_matches('.').ends_with("channel");
                format!("{}{name}", if is_channel { '&' } else { '~' })
            }
            _ => format!("+{}", need.grant),
        };
        if !lacking.contains(&rule) {
            lacking.push(rule);
        }
    }
    Ok(Some((user, lacking)))
}
