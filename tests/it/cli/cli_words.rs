//! The texts of the commands: help, versions, errors, and exit codes. Without Redis.

use hostler_tests::command::{Ended, end, hostler, run, run_line};

/// It ended with this code, and with exactly this text on stderr.
fn complains(ended: &Ended, code: i32, expected: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    assert_eq!(ended.stderr, expected);
}

#[test]
fn version_shows_hostler_wasmtime_and_the_interface() {
    let ended = run(["--version"]).ok();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], concat!("hostler ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("wasmtime 48."), "{lines:?}");
    assert_eq!(lines[2], "wit hostler:handler@1.2.0");
    assert_eq!(ended.stderr, "");
    assert_eq!(run(["-V"]).ok().stdout.lines().count(), 1);
}

#[test]
fn help_goes_to_stdout_and_has_examples() {
    let commands = ",demo,run,publish,queues,trace,pause,resume,ui,watch,dlq groups,dlq peek,dlq show,\
                    dlq replay,dlq purge,dlq export,inspect,deploy,man,\
                    versions,rollback,promote,check,invoke,bench,completions,config init,config schema";
    for command in commands.split(',') {
        let ended = run_line(&format!("{command} --help")).ok();
        assert_eq!(ended.stderr, "", "{command}");
        let (usage, rest) = ended
            .stdout
            .split_once("\n\nExamples:\n  hostler ")
            .unwrap();
        assert!(
            !usage.contains("--help") && rest.contains("\n\nOptions:\n"),
            "{command}"
        );
        let too_wide = ended.stdout.lines().find(|line| line.chars().count() > 100);
        assert_eq!(too_wide, None, "{command}");
    }
    let help = run(["--help"]).ok().stdout;
    for code in [
        "64  usage",
        "65  the component",
        "69  Redis",
        "70  a bug",
        "75  the time",
    ] {
        assert!(help.contains(code), "{code} in {help}");
    }
    for group in [
        "Write a handler",
        "Serve a queue",
        "Look at a queue",
        "Act on a queue",
    ] {
        assert!(
            help.contains(&format!("\n\n{group}:\n  ")),
            "{group} in {help}"
        );
    }
}

#[test]
fn help_shows_what_people_need_and_help_all_every_flag() {
    let all = run(["run", "--help-all"]).ok().stdout;
    for flag in [
        "--min-idle <DURATION>",
        "[default: 30s]",
        "Dead letters:",
        "--until-empty",
    ] {
        assert!(all.contains(flag), "{flag}");
    }
    assert!(!all.contains("redis-password <"), "a password is no flag");
    let flags = |help: &str| {
        let (_, options) = help.split_once("\nOptions:\n").unwrap();
        let lines = options.lines().map(str::trim_start);
        lines.filter(|line| line.starts_with('-')).count()
    };
    assert!(flags(&all) > 100, "{all}");
    for command in [
        "run",
        "dev",
        "check",
        "invoke",
        "publish",
        "deploy",
        "dlq replay",
    ] {
        let help = run_line(&format!("{command} --help")).ok().stdout;
        assert!(flags(&help) <= 40, "{command}: {help}");
        assert!(help.lines().count() < 80, "{command}: {help}");
        assert!(help.contains("--help-all"), "{command}: {help}");
        assert_eq!(run_line(&format!("{command} -h")).ok().stdout, help);
    }
    let help = run(["run", "--help"]).ok().stdout;
    for flag in [
        "--redis",
        "--stream",
        "--group",
        "--handler",
        "--dead-letter",
        "--max-deliveries",
    ] {
        assert!(help.contains(&format!("{flag} <")), "{flag}: {help}");
    }
    // Twelve settings, and those of the command itself.
    assert_eq!(flags(&help), 12 + 5, "{help}");
}

#[test]
fn mistakes_on_the_command_line_exit_with_64() {
    let ended = run(["pubish"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (64, ""));
    let error = "error: unrecognized subcommand 'pubish'";
    assert!(ended.stderr.starts_with(error), "{ended:?}");
    assert!(ended.stderr.contains("'publish'"), "{ended:?}");
    assert_eq!(run(["run", "--min-idel", "5s"]).code, 64);
    assert_eq!(run(Vec::<&str>::new()).code, 64);
    assert_eq!(run(["invoke"]).code, 64);
}

#[test]
fn a_single_problem_has_one_line_and_a_hint() {
    complains(
        &run(["check"]),
        64,
        "error: there is nothing to check\nhint: give a component, or `--config FILE.toml`\n",
    );
    complains(
        &run(["invoke", "nope.wasm", "--memory", "64"]),
        64,
        "error: --memory: `64` has no unit\n\
         hint: write `64B` for bytes, or `64MiB` for units of 1,048,576 bytes\n",
    );
    complains(
        &run(["publish", "--redis", "redis://localhost", "--stream", "s"]),
        64,
        "error: there is nothing to publish\n\
         hint: give `--body TEXT`, `--body-file FILE` or `--lines`\n",
    );
}

#[test]
fn several_problems_are_shown_together() {
    let ended = run_line("run --stream orders --min-idle 30 --max-deliveries 3");
    complains(
        &ended,
        64,
        "error: the configuration has 5 problems\n\
        \x20 --min-idle: `30` has no unit\n\
        \x20   hint: write `30s` for seconds, or `30ms` for milliseconds\n\
        \x20 `redis` is not set\n\
        \x20   hint: give `--redis redis://host:6379`, or `--redis embedded` for a private server\n\
        \x20 `stream` needs `group`\n\
        \x20   hint: give `--group NAME`: hosts with the same group share the stream\n\
        \x20 `handler` is not set\n\
        \x20   hint: give `--handler FILE.wasm`\n\
        \x20 --max-deliveries: `max_deliveries` needs `dead_letter.key`: the message would have nowhere to go\n\
        \x20   hint: give `--dead-letter KEY`, or `--on-cap discard` to lose it on purpose\n",
    );
}

#[test]
fn a_file_that_is_no_component_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("handler.wasm");
    let path = file.to_str().unwrap();
    let ended = run(["check", path]);
    assert_eq!(ended.code, 64, "the path is wrong, not the file: {ended:?}");
    std::fs::write(&file, b"#!/bin/sh\n").unwrap();
    for command in [
        format!("check {path}"),
        format!("invoke {path} --body x"),
        format!("run --redis redis://127.0.0.1:1 --stream s --group g --handler {path}"),
    ] {
        let ended = run_line(&command);
        assert_eq!(ended.code, 65, "{ended:?}");
        let error = format!("error: {path} is not WebAssembly");
        assert!(ended.stderr.starts_with(&error), "{ended:?}");
    }
}

#[test]
fn a_file_that_is_not_there_ends_every_command_with_the_same_code() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().join("here");
    std::fs::write(&here, "[[case]]\noutcome = \"ack\"\n").unwrap();
    let redis = "redis://127.0.0.1:1";
    for line in [
        "check nope".to_owned(),
        "check --config nope".to_owned(),
        "invoke nope --body x".to_owned(),
        format!("invoke {} --body-file nope", here.display()),
        format!("test nope {}", here.display()),
        format!("test {} nope", here.display()),
        format!("publish --redis {redis} --stream s --body-file nope"),
        format!("publish --redis {redis} --redis-password-file nope --stream s --body x"),
        format!("run --redis {redis} --stream s --group g --handler nope"),
        "run --config nope".to_owned(),
        format!("deploy nope --redis {redis} --queue-key orders"),
        "bench --in-process nope".to_owned(),
    ] {
        let ended = run_line(&line);
        assert_eq!(ended.code, 64, "{line}: {ended:?}");
        assert!(ended.stderr.contains("nope"), "{line}: {ended:?}");
        assert!(ended.stderr.contains("No such file"), "{line}: {ended:?}");
    }
}

#[test]
fn numbers_that_cannot_be_zero_say_so() {
    complains(
        &run(["invoke", "x.wasm", "--attempt", "0"]),
        64,
        "error: invalid value '0' for '--attempt <N>': attempts count from 1\n\n\
         For more information, try '--help'.\n",
    );
    for line in [
        "invoke x.wasm --attempt x",
        "publish --maxlen 0",
        "watch --count 0",
        "bench --messages 0",
    ] {
        let ended = run_line(line);
        assert_eq!(ended.code, 64, "{ended:?}");
        let range = "is not a valid positive integer: the range is 1 to";
        assert!(ended.stderr.contains(range), "{line}: {ended:?}");
    }
}

#[test]
fn a_host_and_a_port_are_taken_for_a_url() {
    for (given, url) in [
        ("localhost:7901", "redis://localhost:7901"),
        ("10.0.0.7:6379/2", "redis://10.0.0.7:6379/2"),
    ] {
        let ended = run(["dlq", "peek", "--redis", given, "dead"]);
        assert_eq!(ended.code, 64, "{ended:?}");
        let hint = format!("\nhint: did you mean `{url}`?\n");
        assert!(ended.stderr.ends_with(&hint), "{ended:?}");
    }
    // Another text may hold a password.
    for given in ["hunter2", "app:hunter2@db:6379", "hunter2:x", ":6379"] {
        let ended = run(["dlq", "peek", "--redis", given, "dead"]);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
        assert!(!ended.stderr.contains("did you mean"), "{ended:?}");
    }
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).ok().stdout;
        assert!(script.contains("until-empty"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("man1");
    let written = run(["man", dir.to_str().unwrap()]).ok().stdout;
    let pages: Vec<&str> = written
        .lines()
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    for page in [
        "hostler.1",
        "hostler-run.1",
        "hostler-dlq-peek.1",
        "hostler-config-init.1",
    ] {
        assert!(pages.contains(&page), "{pages:?}");
    }
    assert!(
        !pages.iter().any(|page| page.contains("compile-component")),
        "{pages:?}"
    );
    let page = std::fs::read_to_string(dir.join("hostler-run.1")).unwrap();
    for text in [".TH hostler-run 1", ".SH SYNOPSIS", "min\\-idle", "SIGTERM"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn no_error_repeats_a_password() {
    let url = "redis://app:hunter2@127.0.0.1:1/0";
    for line in [
        "run URL",
        "--redis URL",
        "run --redis URL --stream s --group g --handler nope",
        "dlq peek --redis URL dead",
        "publish --redis URL --stream s --body x",
        "inspect --redis URL --stream s --group g",
    ] {
        let ended = run_line(&line.replace("URL", url));
        assert_ne!(ended.code, 0);
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let ended = run(["dlq", "peek", "--redis", url, "dead"]);
    assert_eq!(ended.code, 69);
    let warning = "warning: --redis: every user of this machine can read the password in the URL";
    assert!(ended.stderr.starts_with(warning));
}

#[test]
fn a_closed_stdout_is_no_error() {
    let mut command = hostler(["completions", "bash"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = end(command.stdout(writer));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}
