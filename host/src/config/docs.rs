//! `docs/configuration.md`, written from the definitions.

use crate::config::setting::Definition;
use crate::config::settings::SECTIONS;

/// The text of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for section in SECTIONS {
        text.push_str(&format!("\n## {}\n\n", section.title));
        text.push_str("| key | flag and variable | type | default | meaning |\n");
        text.push_str("|---|---|---|---|---|\n");
        for setting in section.settings {
            text.push_str(&row(*setting));
        }
    }
    text
}

fn row(setting: &dyn Definition) -> String {
    let name = if setting.is_variable_only() {
        format!("`{}`", setting.variable())
    } else {
        format!("`--{}` `{}`", setting.flag(), setting.variable())
    };
    let key = if setting.is_variable_only() {
        "(not in a file)".to_owned()
    } else {
        format!("`{}`", setting.key())
    };
    let default = match setting.default() {
        Some(default) => format!("`{default}`"),
        None => setting.unset().to_owned(),
    };
    let live = if setting.is_live() { " *Live.*" } else { "" };
    let meaning = format!("{}{live}", setting.meaning());
    let cells = [
        key.as_str(),
        name.as_str(),
        setting.type_name(),
        default.as_str(),
        &meaning,
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

const INTRODUCTION: &str = "\
# Configuration

One host serves one queue, and one TOML file describes it: `hostler run --config orders.toml`. Every
setting is a key of that file, a variable and a flag; a flag wins over a variable, a variable over
the file, the file over the default. `HOSTLER_CONFIG` names the file where no flag does.

```toml
redis = \"redis://redis.internal:6379/0\"
redis_password_file = \"/run/secrets/redis\"
stream = \"orders\"
group = \"billing\"
handler = \"/srv/handlers/billing.wasm\"
max_deliveries = 5
min_idle = \"30s\"
memory = \"64MiB\"

[dead_letter]
key = \"orders:dead\"
max_len = 50_000

[backoff]
first = \"200ms\"
max = \"1m\"
```

`hostler check --config orders.toml` prints every setting as it stands and where it comes from, with
secrets masked, and starts nothing. Whatever is wrong is told at once, each problem with its line;
a key that does not exist is an error that names the nearest one that does.

- **Durations** have a unit: `100ms`, `30s`, `1h30m`. **Sizes** have one too: `64MiB` (1,048,576
  bytes each), `1MB` (1,000,000), `512B`. A number without a unit is an error.
- **Tables**: a key with a dot stands in a table, `dead_letter.key` as `key` under `[dead_letter]`.
- **Switches** (boolean): the flag alone means `true`; `--until-empty=false` overrules a file.
- **Passwords** come from `redis_password_file`, from `HOSTLER_REDIS_PASSWORD`, or from the URL in a
  file. In a flag a password works, with a warning: every user of the machine can read it there.
  What hostler prints or logs never holds one.
- **Live** settings may change under a running host, in its file or by a policy in Redis, which stands
  between the file and the default: [policies.md](policies.md).
- Variables of the form that Kubernetes sets for services (`HOSTLER_PORT`, `HOSTLER_SERVICE_HOST`,
  ...) are not settings and are ignored. Every other unknown `HOSTLER_` variable is an error.

<!-- Generated from host/src/config/settings/: `UPDATE_DOCS=1 cargo test -p hostler docs`. -->
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_what_the_definitions_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == markdown(),
            "docs/configuration.md is stale; run: UPDATE_DOCS=1 cargo test -p hostler docs"
        );
    }
}
