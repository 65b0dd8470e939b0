use std::ffi::OsString;
use std::path::PathBuf;

use super::*;
use crate::delivery::policy::{OnCap, Reason};
use crate::grants::http::rules::HttpRule;
use crate::grants::secrets::rules::SecretSource;
use crate::wire::list::Framing;

/// A configuration from a file's text, variables and flags.
#[derive(Default)]
struct Given<'a> {
    file: &'a str,
    variables: &'a [(&'a str, &'a str)],
    flags: &'a [(&'static str, &'a str)],
}

/// A minimal configuration.
const MINIMAL: &str = "redis = 'redis://db'\nstream = 'orders'\ngroup = 'g'\nhandler = 'h.wasm'\n";

impl Given<'_> {
    fn collect(&self) -> (Collected, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders.toml");
        std::fs::write(&path, self.file).unwrap();
        let os = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        let collected = Collected::new(Input {
            file: Some(&path),
            variables: self.variables.iter().map(os).collect(),
            flags: self
                .flags
                .iter()
                .map(|(key, text)| (*key, (*text).to_owned()))
                .collect(),
            ..Input::default()
        });
        (collected, dir)
    }

    fn config(&self) -> Result<Config, Vec<String>> {
        let (collected, dir) = self.collect();
        let place = format!("{}/", dir.path().display());
        collected
            .config()
            .map(|loaded| loaded.value)
            .map_err(|error| {
                let text = |p: &Problem| match &p.hint {
                    Some(hint) => format!("{p} ({hint})").replace(&place, ""),
                    None => p.to_string().replace(&place, ""),
                };
                error.problems.iter().map(text).collect()
            })
    }
}

fn of(file: &str) -> Result<Config, Vec<String>> {
    Given {
        file,
        ..Given::default()
    }
    .config()
}

fn with(more: &str) -> Result<Config, Vec<String>> {
    of(&format!("{MINIMAL}{more}\n"))
}

#[test]
fn every_default_can_be_read_and_passes_its_check() {
    for setting in settings::all() {
        match setting.default() {
            Some(default) => {
                setting.show(default).unwrap();
                assert_eq!(setting.unset(), "", "{}", setting.key());
            }
            None => assert_ne!(setting.unset(), "", "{}", setting.key()),
        }
        assert!(setting.meaning().ends_with('.'), "{}", setting.key());
    }
}

#[test]
fn keys_flags_and_variables_are_unique() {
    let mut names: Vec<String> = settings::all()
        .flat_map(|s| [s.key().to_owned(), format!("--{}", s.flag()), s.variable()])
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.contains(&"--dead-letter".to_owned()));
    assert!(names.contains(&"HOSTLER_DEAD_LETTER".to_owned()));
}

#[test]
fn a_minimal_configuration_has_the_documented_defaults() {
    let config = of(MINIMAL).unwrap();
    assert_eq!(config.sandbox, sandbox::Settings::default());
    assert_eq!(config.min_idle, Duration::from_secs(30));
    assert_eq!(config.policy.limit.cap, None);
    assert_eq!(
        config.policy.backoff,
        crate::delivery::backoff::Backoff::default()
    );
    assert!(!config.policy.has_dead_letter);
    assert_eq!(config.process.drain_timeout, Duration::from_secs(25));
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let given = Given {
        file: "redis = 'redis://db'\nmax_delivery = 5\nmin_idle = 30\nmemory = '64'\n\
               concurrency = 'many'\n[dead_letter]\nky = 'x'\n",
        variables: &[("HOSTLER_TIMEOUT", "soon"), ("HOSTLER_CONCURENCY", "1")],
        flags: &[("group", "g"), ("reuse", "0")],
    };
    let problems = given.config().unwrap_err();
    assert_eq!(
        problems,
        [
            "unknown variable `HOSTLER_CONCURENCY` (did you mean `HOSTLER_CONCURRENCY`?)",
            "orders.toml:2: unknown key `max_delivery` (did you mean `max_deliveries`?)",
            "orders.toml:3: `min_idle`: `30` has no unit (write `30s` for seconds, or `30ms` for milliseconds)",
            "orders.toml:4: `memory`: `64` has no unit (write `64B` for bytes, or `64MiB` for units of 1,048,576 bytes)",
            "orders.toml:5: `concurrency`: is a string, not an integer (write it like `concurrency = 16`)",
            "orders.toml:7: unknown key `dead_letter.ky` (did you mean `dead_letter.key`?)",
            "HOSTLER_TIMEOUT: `soon` is not a duration (durations look like `30s`, `100ms` or `1h30m`)",
            "--reuse: `0` is not a valid positive integer (the range is 1 to 4294967295)",
            "no queue is set (give exactly one of `stream` (with `group`), `list`, `channel`, `pattern` and `sharded_channel`)",
            "--group: `group` means nothing without `stream` (set `stream` as well, or neither)",
            "`handler` is not set (give `--handler FILE.wasm`)",
        ]
    );
}

#[test]
fn queues_at_most_once_refuse_settings_that_need_a_kept_message() {
    let mut kept = vec![
        ("dead_letter.key", "dead"),
        ("max_deliveries", "5"),
        ("on_cap", "discard"),
        ("on_fault", "dead-letter"),
        ("min_idle", "5s"),
        ("orphan_scan", "5s"),
        ("parked_scan", "5s"),
        ("attempt_accounting", "exact"),
        ("queue.max_length", "5"),
    ];
    // A default that is written down counts as set.
    for setting in settings::all() {
        let key = setting.key();
        let is_such = key.starts_with("dead_letter.") || key.starts_with("backoff.");
        kept.extend(
            setting
                .default()
                .filter(|_| is_such)
                .map(|text| (key, text)),
        );
    }
    assert!(kept.len() >= 14);
    let ttl = |queue| Given {
        flags: &[
            ("redis", "redis://db"),
            ("handler", "h.wasm"),
            ("queue.ttl", "5s"),
        ],
        file: queue,
        ..Given::default()
    };
    let problems = ttl("list = 'q'").config().unwrap_err();
    assert!(problems[0].contains("do not say when"), "{problems:?}");
    ttl("channel = 'q'").config().unwrap();
    for queue in ["list", "channel", "pattern", "sharded_channel"] {
        for &(key, text) in &kept {
            let given = Given {
                flags: &[
                    ("redis", "redis://db"),
                    ("handler", "h.wasm"),
                    (queue, "q"),
                    (key, text),
                ],
                ..Given::default()
            };
            let problems = given.config().unwrap_err();
            let told = format!("`{key}` cannot be honoured: this queue forgets a message");
            assert!(
                problems.iter().any(|p| p.contains(&told)),
                "{queue} {problems:?}"
            );
        }
    }
}

#[test]
fn a_bad_value_is_a_problem_even_if_another_source_wins() {
    let given = Given {
        file: &format!("{MINIMAL}min_idle = 'x'\n"),
        flags: &[("min_idle", "5s")],
        ..Given::default()
    };
    assert_eq!(given.config().unwrap_err().len(), 1);
}

#[test]
fn a_flag_name_or_the_last_part_of_a_key_hints_at_the_key() {
    for (line, key) in [
        ("max_len = 5", "dead_letter.max_len"),
        ("admin_address = 1", "admin"),
        ("[dead_letters]\nkey = 'x'", "dead_letter"),
    ] {
        let problems = with(line).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains(&format!("did you mean `{key}`?")),
            "{problems:?}"
        );
    }
    let problems = Given {
        file: &format!("{MINIMAL}dead_letter = 'x'\n"),
        ..Given::default()
    }
    .config()
    .unwrap_err();
    assert!(
        problems[0].contains("is a table, not a string: set `dead_letter.key`"),
        "{problems:?}"
    );
}

#[test]
fn flag_over_variable_over_file_over_default() {
    let mut given = Given {
        file: MINIMAL,
        ..Given::default()
    };
    assert_eq!(given.config().unwrap().sandbox.concurrency, 16);
    let file = format!("{MINIMAL}concurrency = 2\n");
    given.file = &file;
    assert_eq!(given.config().unwrap().sandbox.concurrency, 2);
    given.variables = &[("HOSTLER_CONCURRENCY", "3")];
    assert_eq!(given.config().unwrap().sandbox.concurrency, 3);
    given.flags = &[("concurrency", "4")];
    assert_eq!(given.config().unwrap().sandbox.concurrency, 4);

    let (collected, dir) = given.collect();
    let effective = collected.effective();
    let source = |key: &str| {
        let found = effective.iter().find(|e| e.key == key).unwrap();
        (found.value.clone(), found.source.clone())
    };
    let text = |value: &str| Some(value.to_owned());
    assert_eq!(
        source("concurrency"),
        (text("4"), Source::Flag("--concurrency".to_owned()))
    );
    let path: Arc<std::path::Path> = dir.path().join("orders.toml").into();
    assert_eq!(source("group"), (text("g"), Source::File { path, line: 3 }));
    assert_eq!(source("min_idle"), (text("30s"), Source::Default));
    assert_eq!(source("max_deliveries"), (None, Source::Default));
    assert_eq!(effective.len(), settings::all().count());
}

#[test]
fn contradictions_are_refused() {
    let cases: &[(&str, &str)] = &[
        (
            "max_deliveries = 3",
            "orders.toml:5: `max_deliveries` needs `dead_letter.key`",
        ),
        (
            "dead_letter.key = 'orders'",
            "orders.toml:5: `dead_letter.key` is the queue itself",
        ),
        (
            "list = 'jobs'",
            "more than one queue is set: `stream`, `list`",
        ),
        (
            "reliable = true",
            "orders.toml:5: `reliable` means nothing without `list`",
        ),
        (
            "redis_cert = '/dev/null'",
            "orders.toml:5: `redis_cert` means nothing without `redis_key`",
        ),
        (
            "redis_ca = '/dev/null'",
            "`redis`: tls files are given, but the redis url is not rediss://",
        ),
        (
            "until_empty_timeout = '5s'",
            "`until_empty_timeout` means nothing without `until_empty`",
        ),
        (
            "backoff.first = '1h'",
            "`backoff.first` (1h) is more than `backoff.max` (30s)",
        ),
        (
            "min_idle = '1ms'",
            "`min_idle`: `1ms` is less than allowed (the range is 100ms to 1day)",
        ),
        (
            "redis_password = 'x'",
            "`redis_password`: cannot be set in a file",
        ),
        (
            "summary = 'jsn'",
            "`summary`: `jsn` is not one of `none`, `json` (did you mean `json`?)",
        ),
        (
            "retention = 'maxlen:0'",
            "`retention`: `0` is not a valid positive integer",
        ),
        ("log.level = 'inof'", "`log.level`: `inof` is not one of"),
        (
            "handler_digest = 'abc'",
            "`handler_digest`: `abc` is not a digest",
        ),
        ("group = 'twice'", "duplicate key"),
    ];
    for (line, expected) in cases {
        let problems = with(line).unwrap_err();
        assert!(
            problems.iter().any(|p| p.contains(expected)),
            "{line}: {problems:?}"
        );
    }
}

#[test]
fn a_cap_needs_no_dead_letter_key_if_messages_are_discarded_on_purpose() {
    let file = format!("{MINIMAL}max_deliveries = 3\non_cap = 'discard'\n");
    let config = of(&file).unwrap();
    assert_eq!(
        (config.policy.limit.cap, config.policy.on_cap),
        (Some(3), OnCap::Discard)
    );
}

/// Settings that give up messages, with their reasons.
const GIVES_UP: [(&str, &str, &[&str]); 9] = [
    (
        "on_fault",
        "on_fault = 'dead-letter'",
        &["trap", "timeout", "memory-limit"],
    ),
    ("queue.max_length", "queue.max_length = 9", &["maxlen"]),
    ("queue.ttl", "queue.ttl = '5s'", &["expired"]),
    ("codec", "codec = 'json'", &["decode-failed"]),
    ("codec", "codec = 'msgpack'", &["decode-failed"]),
    ("codec", "codec = 'utf8'", &["decode-failed"]),
    ("require_headers", "require_headers = 'a'", &["malformed"]),
    ("missing_body", "missing_body = 'malformed'", &["malformed"]),
    ("max_deliveries", "max_deliveries = 3", &["max-deliveries"]),
];

#[test]
fn a_setting_that_gives_up_messages_needs_a_key_or_a_route_for_each_reason() {
    for (key, line, reasons) in GIVES_UP {
        let problems = with(line).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let told = format!("orders.toml:5: `{key}` needs `dead_letter.key`");
        assert!(problems[0].starts_with(&told), "{problems:?}");
        assert!(problems[0].contains("--dead-letter KEY"), "{problems:?}");

        let config = with(&format!("{line}\ndead_letter.key = 'dead'")).unwrap();
        assert!(config.policy.has_dead_letter);

        let routes: Vec<String> = reasons.iter().map(|r| format!("{r}=discard")).collect();
        let routed = format!("{line}\ndead_letter.routes = '{}'", routes.join(", "));
        let config = with(&routed).unwrap();
        assert!(!config.policy.has_dead_letter);
        for reason in reasons {
            let reason = Reason::from_label(reason).unwrap();
            assert!(config.policy.dead_letters.discarded.contains(reason));
        }
        // A route for another reason does not help.
        let other = format!("{line}\ndead_letter.routes = 'dropped=discard'");
        assert_eq!(with(&other).unwrap_err().len(), 1);
    }
}

#[test]
fn each_reason_without_a_route_is_named() {
    let problems =
        with("on_fault = 'dead-letter'\ndead_letter.routes = 'trap=discard'").unwrap_err();
    assert_eq!(
        problems,
        [
            "orders.toml:5: `on_fault` needs `dead_letter.key`: it gives up messages \
             (`timeout`, `memory-limit`), and they would be lost (give `--dead-letter KEY`, or \
             `--dead-letter-routes timeout=discard,memory-limit=discard` to lose them on purpose)"
        ]
    );
}

#[test]
fn queues_at_most_once_may_refuse_messages_without_a_dead_letter_key() {
    for more in [
        "channel = 'c'\nqueue.ttl = '5s'\nrequire_headers = 'a'\ncodec = 'utf8'\n",
        "list = 'l'\nrequire_headers = 'a'\ncodec = 'msgpack'\n",
        "list = 'l'\nframing = 'frame'\n",
        "channel = 'c'\ncodec = 'json'\n",
    ] {
        of(&format!("redis = 'redis://db'\nhandler = 'h'\n{more}")).unwrap();
    }
}

/// A reliable list.
const RELIABLE: &str = "redis = 'redis://db'\nlist = 'jobs'\nreliable = true\nhandler = 'h'\n";

#[test]
fn a_list_of_envelopes_checks_no_bodies() {
    let routed = "dead_letter.routes = 'malformed=discard'\n";
    let file = format!("{RELIABLE}{routed}codec = 'json'\n");
    assert_eq!(of(&file).unwrap().codec, None);
    let problems = of(&format!("{file}framing = 'raw'\n")).unwrap_err();
    assert!(
        problems.len() == 1 && problems[0].contains("`codec` needs `dead_letter.key`"),
        "{problems:?}"
    );
}

#[test]
fn a_framing_that_refuses_values_of_a_reliable_list_needs_a_key_or_a_route() {
    for (more, key) in [
        ("framing = 'frame'", "framing"),
        ("framing = 'json'", "framing"),
        ("codec = 'json'", "codec"),
    ] {
        let file = format!("{RELIABLE}{more}\n");
        let problems = of(&file).unwrap_err();
        let told = format!("orders.toml:5: `{key}` needs `dead_letter.key`: it gives up");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(&told), "{problems:?}");
        assert!(problems[0].contains("malformed=discard"), "{problems:?}");
        of(&format!("{file}dead_letter.key = 'dead'\n")).unwrap();
        of(&format!("{file}dead_letter.routes = 'malformed=discard'\n")).unwrap();
    }
    // Values that are read as they are cannot be malformed.
    for more in ["", "framing = 'auto'", "framing = 'raw'", "codec = 'frame'"] {
        of(&format!("{RELIABLE}{more}\n")).unwrap();
    }
}

#[test]
fn a_route_to_a_key_needs_the_dead_letter_key() {
    let problems = with("dead_letter.routes = 'trap=slow, dropped=discard'").unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("has a key (`trap=slow`), but `dead_letter.key` is not set"),
        "{problems:?}"
    );
    // The missing key is reported once.
    let problems = with("queue.ttl = '5s'\ndead_letter.routes = 'expired=old'").unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("give `--dead-letter KEY` as well"),
        "{problems:?}"
    );
    with("dead_letter.routes = 'dropped=discard'").unwrap();
}

#[test]
fn a_route_may_lead_back_to_the_queue_and_the_cycle_key_may_not() {
    with("dead_letter.key = 'dead'\ndead_letter.routes = 'timeout=slow, trap=orders'").unwrap();
    let problems = with("dead_letter.key = 'dead'\ndead_letter.cycle_key = 'orders'").unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("`dead_letter.cycle_key` is the queue itself"),
        "{problems:?}"
    );
}

#[test]
fn settings_that_would_be_ignored_are_refused() {
    let reliable = "list = 'q'\nreliable = true\ndead_letter.key = 'd'";
    for queue in [reliable, "list = 'q'", "channel = 'q'"] {
        for (more, expected) in [
            ("body_field = 'data'", "`body_field` means nothing here"),
            ("missing_body = 'json'", "`missing_body` means nothing here"),
            (
                "codec = 'frame'\nframing = 'raw'",
                "`codec` `frame` contradicts `framing` `raw`",
            ),
            (
                "codec = 'frame'\nframing = 'json'",
                "`codec` `frame` contradicts `framing` `json`",
            ),
        ] {
            let file = format!("redis = 'redis://db'\nhandler = 'h'\n{queue}\n{more}\n");
            let problems = of(&file).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
        for framing in ["auto", "frame"] {
            let more = format!("{queue}\ncodec = 'frame'\nframing = '{framing}'\n");
            of(&format!("redis = 'redis://db'\nhandler = 'h'\n{more}")).unwrap();
        }
    }
}

#[test]
fn publish_refuses_the_same_contradictions_as_run() {
    let problems = |text: &str| {
        let file = format!("redis = 'redis://db'\n{text}\n");
        let given = Given {
            file: &file,
            ..Given::default()
        };
        let (collected, _dir) = given.collect();
        match collected.redis_and_destination() {
            Ok(_) => Vec::new(),
            Err(error) => error.problems.iter().map(ToString::to_string).collect(),
        }
    };
    for queue in ["list = 'q'", "channel = 'q'", "sharded_channel = 'q'"] {
        for (more, expected) in [
            ("body_field = 'data'", "`body_field` means nothing here"),
            ("missing_body = 'json'", "`missing_body` means nothing here"),
            (
                "codec = 'frame'\nframing = 'raw'",
                "`codec` `frame` contradicts `framing` `raw`",
            ),
        ] {
            let found = problems(&format!("{queue}\n{more}"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(expected), "{found:?}");
        }
        for more in ["", "framing = 'raw'", "codec = 'json'", "codec = 'utf8'"] {
            let found = problems(&format!("{queue}\n{more}"));
            assert!(found.is_empty(), "{found:?}");
        }
    }
    let found = problems("stream = 'q'\nframing = 'raw'");
    assert!(
        found[0].contains("`framing` means nothing to a stream"),
        "{found:?}"
    );
    assert!(problems("stream = 'q'\nbody_field = 'data'\ncodec = 'json'").is_empty());
}

#[test]
fn queues_at_most_once_have_no_dead_letters_and_no_cap() {
    let file = "redis = 'redis://db'\nlist = 'jobs'\nhandler = 'h'\nmax_deliveries = 2\n\
                dead_letter.key = 'dead'\n";
    let problems = of(file).unwrap_err();
    assert_eq!(problems.len(), 2);
    assert!(
        problems.iter().all(|p| p.contains("cannot be honoured")),
        "{problems:?}"
    );
    let reliable = format!("{file}[x]\n")
        .replace("[x]", "")
        .replace("list =", "reliable = true\nlist =");
    of(&reliable).unwrap();
}

#[test]
fn settings_of_a_list_must_fit_together() {
    let base = "redis = 'redis://db'\nlist = 'jobs'\nhandler = 'h'\n";
    for (more, expected) in [
        ("recovery_zset = 'z'\n", "means nothing without `reliable`"),
        (
            "reliable = true\nrecovery_ttl = '60s'\n",
            "means nothing without `recovery_zset`",
        ),
        (
            "reliable = true\nrecovery_zset = 'z'\nrecovery_ttl = '30s'\n",
            "`recovery_ttl` (30s) must be longer than `min_idle` (30s)",
        ),
        (
            "reliable = true\nrecovery_zset = 'jobs'\n",
            "is another key of this queue",
        ),
        (
            "reliable = true\nrecovery_zset = 'z'\ndead_letter.key = 'z'\n",
            "is another key of this queue",
        ),
        ("codec = 'raw'\n", "`raw` is not one of"),
    ] {
        let file = format!("{base}{more}");
        let problems = of(&file).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
    let stream = MINIMAL.to_owned() + "framing = 'raw'\ncodec = 'frame'\n";
    let problems = of(&stream).unwrap_err();
    assert!(
        problems.len() == 2 && problems.iter().all(|p| p.contains("nothing to a stream")),
        "{problems:?}"
    );
    let file = format!(
        "{base}reliable = true\ncodec = 'json'\nrecovery_zset = 'z'\nrecovery_ttl = '31s'\n\
         dead_letter.key = 'd'\n"
    );
    let config = of(&file).unwrap();
    let QueueKind::List {
        framing, reliable, ..
    } = config.queue
    else {
        panic!("it is a list")
    };
    assert_eq!(framing, Framing::Json);
    let recovery = reliable.unwrap().recovery.unwrap();
    assert_eq!(
        (&*recovery.key, recovery.ttl),
        ("z", Some(Duration::from_secs(31)))
    );
}

#[test]
fn services_of_kubernetes_are_not_settings() {
    let given = Given {
        file: MINIMAL,
        variables: &[
            ("HOSTLER_PORT", "tcp://10.0.0.1:9400"),
            ("HOSTLER_SERVICE_HOST", "10.0.0.1"),
            ("HOSTLER_PORT_9400_TCP_ADDR", "10.0.0.1"),
            ("HOSTLER_CONFIG", "/etc/hostler.toml"),
            ("OTHER", "x"),
        ],
        ..Given::default()
    };
    given.config().unwrap();
}

#[test]
fn secrets_are_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let by_file = format!("{MINIMAL}redis_password_file = '{}'\n", file.display());
    let by_url = MINIMAL.replace("redis://db", "redis://app:hunter2@db");
    let by_variable = [("HOSTLER_REDIS_PASSWORD", "hunter2")];
    for (file, variables) in [
        (by_file.as_str(), &[][..]),
        (by_url.as_str(), &[]),
        (MINIMAL, &by_variable),
    ] {
        let given = Given {
            file,
            variables,
            ..Given::default()
        };
        let (collected, _dir) = given.collect();
        let shown = format!("{collected:?} {:?}", collected.effective());
        let config = collected.config().unwrap().value;
        let Server::At(target) = &config.redis.server else {
            panic!("a server is named");
        };
        let password = target.password().unwrap().unwrap();
        assert_eq!(password.reveal(), "hunter2");
        assert!(
            !format!("{shown} {config:?}").contains("hunter2"),
            "{shown} {config:?}"
        );
    }
}

#[test]
fn a_password_in_a_flag_works_with_a_warning_and_two_passwords_do_not() {
    let given = Given {
        file: MINIMAL,
        flags: &[("redis", "redis://:hunter2@db")],
        ..Given::default()
    };
    let (collected, _dir) = given.collect();
    let loaded = collected.config().unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    let warning = format!("{} {:?}", loaded.warnings[0], loaded.warnings[0].hint);
    assert!(
        warning.contains("every user of this machine can read") && !warning.contains("hunter2")
    );

    let problems = Given {
        variables: &[("HOSTLER_REDIS_PASSWORD", "hunter3")],
        ..given
    }
    .config()
    .unwrap_err();
    assert_eq!(
        problems,
        ["there are 2 passwords: HOSTLER_REDIS_PASSWORD, --redis (keep one of them)"]
    );
}

#[test]
fn recordings_that_may_take_more_than_a_gibibyte_are_worth_a_warning() {
    let warnings = |more: &str| {
        let file = format!("{MINIMAL}dead_letter.key = 'dead'\n{more}\n");
        let given = Given {
            file: &file,
            ..Given::default()
        };
        let (collected, _dir) = given.collect();
        let warnings = collected.config().unwrap().warnings;
        let shown = warnings.iter().map(|one| format!("{one} {:?}", one.hint));
        shown.collect::<Vec<_>>()
    };
    let full = "dead_letter.recording = 'full'";
    let [warning] = &*warnings(full) else {
        panic!("one warning")
    };
    for part in [
        "orders.toml:6: recordings may take 24.4 GiB",
        "`dead_letter.max_len` is 100000",
        "`max_len = 4096`",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(
        warnings(&format!("{full}\ndead_letter.max_len = 4097")).len(),
        1
    );
    for quiet in [
        "dead_letter.max_len = 100000",
        &format!("{full}\ndead_letter.max_len = 4096"),
    ] {
        assert!(warnings(quiet).is_empty(), "{quiet}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem_like_any_other() {
    let collected = Collected::new(Input {
        file: Some(&PathBuf::from("/nonexistent/orders.toml")),
        flags: vec![("memory", "12".to_owned())],
        ..Input::default()
    });
    let error = collected.redis().unwrap_err();
    assert!(
        error.problems[0]
            .to_string()
            .starts_with("cannot read /nonexistent/orders.toml: ")
    );
    assert_eq!(error.problems.len(), 2, "{error}");
}

#[test]
fn paths_in_a_file_are_relative_to_the_file_and_those_of_flags_are_not() {
    let file = "redis = 'embedded'\nstream = 'orders'\ngroup = 'g'\nhandler = 'h.wasm'\n\
                compile_cache = 'cache'\n\
                [[grant.http]]\nhost = 'a.example.com'\nca = 'ca.pem'\n\
                [[grant.files]]\npath = '/usr/lib'\nat = '/lib'\n\
                [grant.secret]\nshop = { file = 'token' }\n";
    let flags = [("compile_cache", "elsewhere")];
    for flags in [&[][..], &flags] {
        let given = Given {
            file,
            flags,
            ..Given::default()
        };
        let (collected, dir) = given.collect();
        let folder = dir.path();
        let http: Vec<HttpRule> = collected.value(&settings::grants::HTTP).unwrap();
        assert_eq!(http[0].ca, Some(folder.join("ca.pem")));
        let secrets = collected.value(&settings::grants::SECRETS).unwrap();
        assert!(
            matches!(&secrets[0].source, SecretSource::File(path) if *path == folder.join("token"))
        );
        let config = collected.config().unwrap().value;
        assert_eq!(config.handler.file, folder.join("h.wasm"));
        assert_eq!(
            config.sandbox.grants.files[0].path,
            PathBuf::from("/usr/lib")
        );
        let cache = match flags {
            [] => folder.join("cache"),
            _ => PathBuf::from("elsewhere"),
        };
        assert_eq!(config.sandbox.cache.unwrap().dir, cache);
        let development = config.development;
        assert_eq!(
            (&*development.folder, development.watch),
            (folder, folder.join("."))
        );
        assert!(
            matches!(&config.redis.server, Server::Embedded(at) if *at == folder.join(".hostler"))
        );
    }
}

#[test]
fn a_flag_replaces_the_server_and_the_queue_of_a_file_that_was_only_found() {
    let found = |flags: &[(&'static str, &str)]| {
        let text = "redis = 'redis://db'\nredis_password_file = '/nonexistent'\nlist = 'jobs'\n\
                    reliable = true\nhandler = 'h.wasm'\n";
        Collected::new(Input {
            file: Some("hostler.toml".as_ref()),
            is_beside: true,
            file_text: Some(text),
            flags: flags
                .iter()
                .map(|(key, text)| (*key, (*text).to_owned()))
                .collect(),
            ..Input::default()
        })
    };
    let set = |collected: &Collected, key: &str| {
        let effective = collected.effective().into_iter().find(|one| one.key == key);
        effective.unwrap().source != Source::Default
    };
    let server = found(&[("redis", "embedded")]);
    assert!(
        !set(&server, "redis_password_file") && set(&server, "list") && set(&server, "reliable")
    );
    for (flags, is_kept) in [
        (&[("stream", "orders"), ("group", "g")][..], false),
        (&[("list", "others")], false),
        (&[("list", "jobs")], true),
    ] {
        let queue = found(flags);
        assert_eq!(set(&queue, "reliable"), is_kept, "{flags:?}");
        assert_eq!(set(&queue, "handler"), is_kept, "{flags:?}");
        assert!(set(&queue, "redis_password_file"));
    }
}

#[test]
fn shown_sizes_and_durations_can_be_read_again() {
    for text in ["64MiB", "1MB", "1500B", "3GiB", "0B", "1TiB"] {
        assert_eq!(ByteSize::parse(text).unwrap().show(), text);
    }
    assert_eq!(ByteSize::parse("1_024 KiB").unwrap().show(), "1MiB");
    for text in ["", "64", "64M", "1.5MiB", "MiB", "99999999999TiB", "-1B"] {
        ByteSize::parse(text).unwrap_err();
    }
    for text in ["30s", "100ms", "1h30m", "0s", "1day"] {
        assert_eq!(Duration::parse(text).unwrap().show(), text);
    }
    for text in ["", "30", "0", "1.5", "s", "-1s"] {
        Duration::parse(text).unwrap_err();
    }
}

#[test]
fn an_admin_port_alone_means_loopback() {
    for text in ["9400", ":9400", "127.0.0.1:9400", "localhost:9400"] {
        assert_eq!(
            SocketAddr::parse(text).unwrap().to_string(),
            "127.0.0.1:9400"
        );
    }
    assert_eq!(
        SocketAddr::parse("0.0.0.0:1").unwrap().to_string(),
        "0.0.0.0:1"
    );
    SocketAddr::parse("example.com:1").unwrap_err();
}

#[test]
fn numbers_and_durations_that_redis_or_a_clock_cannot_hold_are_refused() {
    for (more, problem) in [
        (
            "wait_redis = '500000000000y'",
            "`500000000000y` is longer than 100 years",
        ),
        (
            "until_empty = true\nuntil_empty_timeout = '101years'",
            "`101years` is longer than 100 years",
        ),
        (
            "dead_letter.key = 'd'\ndead_letter.max_len = 9007199254740992",
            "`9007199254740992` is not a valid positive integer \
             (the range is 1 to 9007199254740991)",
        ),
        (
            "retention = 'maxlen:18446744073709551615'",
            "`18446744073709551615` is not a valid positive integer",
        ),
    ] {
        let problems = with(more).unwrap_err();
        assert!(problems[0].contains(problem), "{problems:?}");
    }
    with("dead_letter.key = 'd'\ndead_letter.max_len = 9007199254740991").unwrap();
    with("wait_redis = '99years'").unwrap();
}

#[test]
fn the_keys_that_hostler_keeps_for_a_queue_are_refused_wherever_a_key_is_named() {
    let list = "redis = 'redis://db'\nhandler = 'h'\nreliable = true\nlist = 'jobs'\n";
    let stream = "redis = 'redis://db'\nhandler = 'h'\ngroup = 'g'\n";
    for (file, setting) in [
        (
            format!("{list}recovery_zset = '{{jobs}}:delayed'"),
            "recovery_zset",
        ),
        (
            format!("{list}dead_letter.key = '{{jobs}}:retry'"),
            "dead_letter.key",
        ),
        (
            format!("{list}dead_letter.key = '{{other}}:instances'"),
            "dead_letter.key",
        ),
        (
            format!("{list}dead_letter.key = 'd'\ndead_letter.routes = 'trap={{jobs}}:retry'"),
            "dead_letter.routes",
        ),
        (
            format!("{list}dead_letter.key = 'd'\ndead_letter.cycle_key = '{{jobs}}:retry'"),
            "dead_letter.cycle_key",
        ),
        (format!("{stream}stream = '{{jobs}}:parked:g'"), "stream"),
        (list.replace("'jobs'", "'{jobs}:retry'"), "list"),
    ] {
        let problems = of(&file).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let what = format!("`{setting}` is a key that hostler itself keeps for a queue");
        assert!(problems[0].contains(&what), "{problems:?}");
    }
    // Messages that went round may have a handler of their own.
    of(&format!("{stream}stream = '{{jobs}}:cycle'")).unwrap();
}
