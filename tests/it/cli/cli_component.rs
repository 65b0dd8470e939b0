//! `check FILE` and `invoke`: components without any Redis.

use hostler_tests::command::{Ended, Host, fed, hostler, run, run_line};
use hostler_tests::guests::guest;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

fn scripted() -> String {
    guest("scripted").to_str().unwrap().to_owned()
}

#[test]
fn check_shows_the_interface_the_digest_and_the_imports_of_a_component() {
    let text = run(["check", &scripted()]).ok().stdout;
    assert!(
        text.contains("hostler:handler/message-handler@1.2.0"),
        "{text}"
    );
    assert!(text.contains("sha256:"), "{text}");
    assert!(text.contains("always there"), "{text}");
    let json = run(["check", &scripted(), "--json"]).ok().json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["interface"], "hostler:handler/message-handler@1.2.0");
    assert_eq!(json["digest"].as_str().unwrap().len(), "sha256:".len() + 64);
    assert!(json["size_bytes"].as_u64().unwrap() > 1000);
    let imports = json["imports"].as_array().unwrap();
    let delivery = imports
        .iter()
        .find(|i| i["name"] == "hostler:handler/delivery@1.2.0")
        .unwrap();
    assert_eq!(delivery["needs"], "nothing");
}

#[test]
fn check_applies_the_given_limits() {
    let ended = run(["check", &scripted(), "--memory", "64KiB"]);
    assert_eq!(ended.code, 65, "{ended:?}");
    assert!(ended.stderr.contains("bytes of linear memory"), "{ended:?}");
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    // No process ever writes to it.
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    let config = dir.path().join("orders.toml");
    let password = format!("stream = \"orders\"\nredis_password_file = \"{pipe}\"\n");
    std::fs::write(&config, password).unwrap();
    let (scripted, config) = (scripted(), config.to_str().unwrap());
    let commands: [(&[&str], i32); 5] = [
        (&["check", pipe], 65),
        (&["check", "--config", pipe], 64),
        (&["check", "--config", config], 64),
        (&["check", &scripted, "--config", pipe], 64),
        (&["invoke", pipe, "--body", "x"], 65),
    ];
    for (command, code) in commands {
        let ended = ended_in_time(command);
        assert_eq!(ended.code, code, "{command:?}: {ended:?}");
        let (what, remedy) = ("it is a pipe", "copy its content to a regular file");
        let said = ended.stderr.contains(what) && ended.stderr.contains(remedy);
        assert!(said, "{command:?}: {ended:?}");
    }
}

#[test]
fn a_device_or_a_directory_is_no_component() {
    for file in ["/dev/null", "/dev/zero", "/"] {
        for command in [&["check", file][..], &["invoke", file, "--body", "x"]] {
            let ended = ended_in_time(command);
            assert_eq!(ended.code, 65, "{command:?}: {ended:?}");
        }
    }
}

/// Run a command that may hang.
fn ended_in_time(command: &[&str]) -> Ended {
    let mut host = Host::spawn(hostler(command));
    host.end()
}

#[test]
fn invoke_exits_with_the_code_of_the_outcome() {
    for (body, code, outcome) in [
        ("ack", 0, "ack"),
        ("nack:1500", 10, "nack-requeue"),
        ("nack:2592000000", 10, "nack-requeue"),
        ("nack:2592000001", 12, "fault"),
        ("nack", 10, "nack-requeue"),
        ("drop:unwanted", 11, "drop"),
        ("trap", 12, "fault"),
    ] {
        let ended = run(["invoke", &scripted(), "--body", body, "--json"]);
        assert_eq!(ended.code, code, "{ended:?}");
        let json = ended.json();
        assert_eq!(json["outcome"], outcome);
        assert!(json["duration_us"].as_u64().unwrap() > 0);
        assert!(json["memory_bytes"].as_u64().unwrap() >= 65536);
        let expected = match body {
            "nack:1500" => (Some(1500), None, None),
            "nack:2592000000" => (Some(2_592_000_000), None, None),
            "nack:2592000001" => (
                None,
                Some("nack-requeue after 30days 1ms: the longest delay is 30days"),
                Some("bad-outcome"),
            ),
            "drop:unwanted" => (None, Some("unwanted"), None),
            "trap" => (None, json["reason"].as_str(), Some("trap")),
            _ => (None, None, None),
        };
        let found = (
            json["delay_ms"].as_u64(),
            json["reason"].as_str(),
            json["fault"].as_str(),
        );
        assert_eq!(found, expected);
        let text = run(["invoke", &scripted(), "--body", body]);
        assert_eq!(text.code, code);
        let begin = format!("outcome  {outcome}");
        assert!(text.stdout.starts_with(&begin), "{text:?}");
    }
}

#[test]
fn invoke_shows_what_an_ack_would_publish() {
    let handler = guest("publishing").display().to_string();
    let grant =
        r#"--grant-publish={"invoices":"stream:invoices","raw":{"to":"list:raw","codec":"raw"}}"#;
    let invoke = |body: &str| ["invoke", &handler, grant, "--body", body].map(str::to_owned);
    let body = "publish:invoices:a\u{1b}[31m+header:invoices:tenant=7+later:invoices:60000:l+publish:raw:b";
    let text = run(invoke(body)).ok().stdout;
    for line in [
        "would publish to invoices: a\\u{1b}[31m",
        "would publish to invoices with tenant=7: ",
        "would publish to invoices after 1m: l",
        "would publish to raw: b",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let json = |body: &str| run(invoke(body).into_iter().chain(["--json".to_owned()])).json();
    let published = json(body);
    assert_eq!(published["discarded"], 0);
    let message = |body: &str, headers: serde_json::Value, delay: Option<u64>| {
        serde_json::json!({ "to": "invoices", "body": body, "body_base64": null, "headers": headers,
            "delay_ms": delay })
    };
    assert_eq!(
        published["published"].as_array().unwrap()[..3],
        [
            message("a\u{1b}[31m", serde_json::json!([]), None),
            message("", serde_json::json!([["tenant", "7"]]), None),
            message("l", serde_json::json!([]), Some(60_000)),
        ]
    );
    for end in ["nack", "drop", "trap"] {
        let body = format!("publish:invoices:a+publish:raw:b+{end}");
        let shown = run(invoke(&body)).stdout;
        let line = "would publish and set nothing (2 held effects are discarded)";
        assert!(shown.lines().any(|l| l == line), "{shown}");
        let json = json(&body);
        assert_eq!(json["published"], serde_json::json!([]), "{json}");
        assert_eq!(json["discarded"], 2, "{json}");
    }
}

#[test]
fn flags_set_the_attempt_and_the_headers_of_the_message() {
    let script = "nack,nack,ack";
    for (attempt, code) in [("1", 10), ("2", 10), ("3", 0), ("9", 0)] {
        let invoke = format!("invoke {} --body {script} --attempt {attempt}", scripted());
        let ended = run_line(&invoke);
        assert_eq!(ended.code, code, "{ended:?}");
    }
    let with_id = "--body ack --header x-message-id=abc --json";
    let json = run_line(&format!("invoke {} {with_id}", scripted())).json();
    assert_eq!(json["logs"][0], "start abc 1");
}

#[test]
fn a_body_may_come_from_a_file_or_from_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, "drop:from a file").unwrap();
    let (handler, file) = (scripted(), file.display());
    let ended = run_line(&format!("invoke {handler} --body-file {file} --json"));
    assert_eq!(ended.json()["reason"], "from a file");
    let ended = fed(
        ["invoke", &scripted(), "--body-file", "-", "--json"],
        b"drop:from stdin",
    );
    assert_eq!(ended.json()["reason"], "from stdin");
    let both = run(["invoke", &scripted(), "--body-file", "-", "--body", "x"]);
    assert_eq!(both.code, 64, "{both:?}");
}

#[test]
fn the_given_limits_apply() {
    for (flags, fault) in [
        ("--body sleep:60000 --timeout 50ms", "wall-timeout"),
        ("--body loop --cpu 50ms", "cpu-timeout"),
    ] {
        let ended = run_line(&format!("invoke {} {flags} --json", scripted()));
        assert_eq!(ended.code, 12);
        assert_eq!(ended.json()["fault"], fault);
    }
}

#[test]
fn a_component_can_be_measured_without_redis() {
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), "nack").unwrap();
    let file = body.path().display();
    let bench = |handler: &str, flags: &str| {
        let line = format!("bench --in-process {handler} --messages 50 --repeat 2");
        run_line(&format!("{line} --body-file {file} {flags}"))
    };
    let json = bench(&scripted(), "--json").ok().json();
    assert_eq!(json["outcome"], "nack-requeue");
    assert_eq!(json["body_bytes"], 4);
    assert_eq!(json["rounds"], 2);
    assert!(json["memory_bytes"].as_u64().unwrap() >= 65536);
    for time in ["compile_ms", "cached_start_ms", "first_call_us"] {
        assert!(json[time].as_f64().unwrap() > 0.0, "{time}: {json}");
    }
    for mode in ["fresh", "reuse"] {
        let figures = &json[mode];
        assert!((1..=100).contains(&figures["calls"].as_u64().unwrap()));
        let time = |name: &str| figures[name].as_f64().unwrap();
        assert!(time("p50_us") > 0.0 && time("p50_us") <= time("p99_us"));
        assert!(time("messages_per_second") > 0.0, "{json}");
    }
    assert_eq!(json["batch"], serde_json::Value::Null);
    let text = bench(&scripted(), "").ok().stdout;
    assert!(text.contains("a reused instance"), "{text}");
    let batch = guest("batch").display().to_string();
    let json = bench(&batch, "--batch-size=8 --json").ok().json();
    assert_eq!(json["batch_size"], 8);
    assert!(json["batch"]["p50_us"].as_f64().unwrap() > 0.0, "{json}");
    // A handler that faults cannot be measured.
    std::fs::write(body.path(), "trap").unwrap();
    let ended = bench(&scripted(), "");
    assert_eq!(ended.code, 65, "{ended:?}");
    let error = "the handler faults: trap";
    assert!(ended.stderr.contains(error), "{ended:?}");
    let missing = run(["bench", "--in-process", "nowhere.wasm"]);
    assert_eq!(missing.code, 64, "{missing:?}");
}

#[test]
fn invoke_plays_attempts_in_sequence_with_one_journal() {
    let handler = guest("durable").display().to_string();
    let played = |body: &str, attempts: &str| {
        let words = ["invoke", &handler, "--body", body, "--attempts", attempts];
        let grant = ["--grant-journal", "{}", "--json"];
        let ended = run(words.iter().chain(&grant));
        let lines: Vec<serde_json::Value> = ended
            .stdout
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let seen =
            |line: &serde_json::Value| (line["outcome"].to_string(), line["reason"].to_string());
        (ended.code, lines.iter().map(seen).collect::<Vec<_>>())
    };
    let steps = "once:id=1+nack,once:id=2+trap,recall:id";
    let (code, seen) = played(steps, "3");
    assert_eq!(code, 11);
    let outcomes: Vec<_> = seen.iter().map(|(outcome, _)| &**outcome).collect();
    assert_eq!(outcomes, ["\"nack-requeue\"", "\"fault\"", "\"drop\""]);
    assert_eq!(seen[2].1, "\"1\"");
    // The last one says how it ends, and nothing is played after an ack.
    assert_eq!(played(steps, "2").0, 12);
    assert_eq!(played("nack,ack,drop", "5").1.len(), 2);
}
