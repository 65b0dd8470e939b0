//! `hostler test`: a table of messages against a component.

use hostler_tests::command::{Ended, end, hostler};
use hostler_tests::guests::language;
use serde_json::Value as Json;

/// Run it with this table against the example in Rust.
fn test(table: &str, arguments: &[&str]) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cases.toml"), table).unwrap();
    std::fs::write(dir.path().join("order.json"), r#"{"id":"f","amount":0}"#).unwrap();
    let cases = dir.path().join("cases.toml");
    let handler = language("rust");
    let mut command = hostler(["test", handler.to_str().unwrap(), cases.to_str().unwrap()]);
    command.args(["--timeout", "50s", "--cpu", "50s"]);
    end(command.args(arguments))
}

#[test]
fn cases_with_the_expected_outcome_pass() {
    let ended = test(
        r#"
        [[case]]
        name = "good"
        body = '{"id":"1","amount":1}'
        headers = { "x-tenant" = "7" }
        outcome = "ack"
        log = ["attempt 1", "charged"]

        [[case]]
        name = "later"
        body = '{"id":"1","amount":1,"simulate":"payment-timeout","failures":9}'
        attempt = 3
        max_attempts = 5
        outcome = "nack-requeue"
        delay = "400ms"

        [[case]]
        name = "later, with any delay"
        body = '{"id":"1","amount":1,"simulate":"payment-timeout"}'
        outcome = "nack-requeue"

        [[case]]
        name = "nothing at all"
        outcome = "drop"

        [[case]]
        name = "from a file beside"
        body_file = "order.json"
        outcome = "drop"
        reason = "order f: nothing to charge"

        [[case]]
        name = "bytes"
        body_base64 = "/w=="
        outcome = "drop"
        reason = "not an order"

        [[case]]
        name = "a bug"
        body = '{"id":"1","amount":1,"simulate":"crash"}'
        outcome = "fault"
        fault = "trap"

        [[case]]
        outcome = "drop"
        "#,
        &[],
    )
    .ok();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 9, "{ended:?}");
    assert_eq!(lines[0], "ok    good");
    // A case without a name has its number.
    assert_eq!(lines[7], "ok    case 8");
    assert_eq!(lines[8], "8 passed, 0 failed");
}

#[test]
fn cases_with_another_outcome_fail_and_show_it() {
    let table = r#"
        [[case]]
        name = "a wrong outcome"
        body = "hello"
        outcome = "ack"

        [[case]]
        name = "a wrong delay"
        body = '{"id":"1","amount":1,"simulate":"payment-timeout"}'
        outcome = "nack-requeue"
        delay = "1s"

        [[case]]
        name = "a wrong reason"
        outcome = "drop"
        reason = "because"

        [[case]]
        name = "a wrong fault"
        body = '{"id":"1","amount":1,"simulate":"crash"}'
        outcome = "fault"
        fault = "wall-timeout"

        [[case]]
        name = "a line that is not there"
        body = '{"id":"1","amount":1}'
        outcome = "ack"
        log = ["charged", "twice"]

        [[case]]
        name = "good"
        body = '{"id":"1","amount":1}'
        outcome = "ack"
    "#;
    let ended = test(table, &[]);
    assert_eq!(ended.code, 1, "{ended:?}");
    for line in [
        "FAIL  a wrong outcome: expected ack, got drop: not an order",
        "      | attempt 1: not an order",
        "FAIL  a wrong delay: expected nack-requeue after 1s, got nack-requeue after 100ms",
        "FAIL  a wrong reason: expected drop: because, got drop: not an order",
        "FAIL  a line that is not there: expected a log line with `twice`, got ack",
        "ok    good",
        "1 passed, 5 failed",
    ] {
        let mut lines = ended.stdout.lines();
        assert!(lines.any(|l| l == line), "{line}\n{}", ended.stdout);
    }
    let fault = "expected fault (wall-timeout), got fault (trap)";
    assert!(ended.stdout.contains(fault));

    let ended = test(table, &["--json"]);
    assert_eq!(ended.code, 1);
    let lines = ended.stdout.lines();
    let lines: Vec<Json> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 7, "{ended:?}");
    assert_eq!(lines[0]["passed"], false);
    assert_eq!(lines[0]["objection"], "expected ack");
    assert_eq!(lines[0]["outcome"], "drop: not an order");
    assert_eq!(lines[0]["logs"][0], "attempt 1: not an order");
    assert_eq!(lines[6], serde_json::json!({ "passed": 1, "failed": 5 }));
}

#[test]
fn a_wrong_table_is_refused_before_any_case_runs() {
    let refused = |table: &str, complaint: &str| {
        let ended = test(table, &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (64, ""), "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{complaint}: {ended:?}");
    };
    refused("", "it has no [[case]]");
    refused("[[case]", "cases.toml");
    refused(
        "[[case]]\nname = 'a'\noutcome = 'acknowledge'",
        "acknowledge",
    );
    refused("[[case]]\nname = 'a'\noutcome = 'ack'\nbdy = ''", "bdy");
    refused("[[case]]\nname = 'a'", "outcome");
    refused(
        "[[case]]\noutcome = 'ack'\n[[case]]\noutcome = 'ack'\ndelay = '1s'",
        "case 2: `delay` does not go with this outcome",
    );
    refused(
        "[[case]]\nname = 'a'\noutcome = 'ack'\ndelay = '1s'\n\
         [[case]]\nname = 'b'\noutcome = 'drop'\nbody = ''\nbody_base64 = ''",
        "case `a`: `delay` does not go with this outcome",
    );
    refused(
        "[[case]]\nname = 'a'\noutcome = 'nack-requeue'\ndelay = '1'",
        "case `a`: `delay`",
    );
    refused(
        "[[case]]\nname = 'a'\noutcome = 'ack'\nattempt = 0",
        "case `a`: `attempt`: attempts count from 1",
    );
    refused(
        "[[case]]\nname = 'a'\noutcome = 'ack'\nbody_file = 'nope'",
        "nope",
    );
}

#[test]
fn with_reuse_a_case_sees_the_memory_of_earlier_cases() {
    // The guest counts its starts in memory.
    let dir = tempfile::tempdir().unwrap();
    let cases = dir.path().join("cases.toml");
    let counts = "[[case]]\nname = 'n'\nbody = 'count'\noutcome = 'drop'\nreason = '1'\n";
    let second = counts.replace("'1'", "'2'");
    let handler = hostler_tests::guests::guest("scripted");
    let run = |table: String, reuse: &str| {
        std::fs::write(&cases, table).unwrap();
        let mut command = hostler(["test", handler.to_str().unwrap(), cases.to_str().unwrap()]);
        end(command.args(["--timeout", "50s", "--cpu", "50s", "--reuse", reuse]))
    };
    run(counts.repeat(2), "1").ok();
    run(format!("{counts}{second}"), "100").ok();
    assert_eq!(run(counts.repeat(2), "100").code, 1);
}
