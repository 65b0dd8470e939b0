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

#[test]
fn requests_are_answered_by_the_table_and_no_packet_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[[grant.http]]\nhost = \"api.test\"\npath = \"/v1\"\n\
                  # No such file is needed: nothing is encrypted.\nca = \"/nowhere/ca.pem\"\n\
                  [[grant.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = 1\n\
                  [grant.secret]\nneeded = { variable = \"PATH\", expose = true }\n\
                  [[grant.tcp]]\nhost = \"db.test\"\nport = 5432\n";
    std::fs::write(dir.path().join("hostler.toml"), config).unwrap();
    let handler = hostler_tests::guests::guest("outbound");
    let run = |table: &str| {
        std::fs::write(dir.path().join("cases.toml"), table).unwrap();
        let mut command = hostler(["test", handler.to_str().unwrap(), "cases.toml"]);
        command.args([
            "--config",
            "hostler.toml",
            "--timeout",
            "50s",
            "--cpu",
            "50s",
        ]);
        end(command.current_dir(dir.path()))
    };
    let case = |body: &str, reason: &str, http: &str| {
        format!("[[case]]\nbody = '{body}'\noutcome = 'drop'\nreason = '{reason}'\n{http}\n")
    };
    let charge = "[[case.http]]\nrequest = 'POST https://api.test/v1/charges?a=b'\nsends = 'cents=5'\n\
                  status = 201\nbody = 'done'\nheaders = { x-charge = 'ch-1' }";
    let sent = "fetch:POST|https://api.test/v1/charges?a=b|b=cents=5";
    let port = "[[case.http]]\nrequest = 'GET http://127.0.0.1:1/'";
    run(&[
        case(sent, "201 done", charge),
        case(&format!("{sent}|show=x-charge"), "Some(\"ch-1\")", charge),
        case("fetch:GET|http://127.0.0.1:1/", "200 ", port),
        case(
            "wasi:GET|https|api.test|/v1",
            "200 yes",
            "[[case.http]]\nrequest = 'GET https://api.test/v1'\nbody = 'yes'",
        ),
    ]
    .concat())
    .ok();

    let ended = run(&[
        case(
            "fetch:GET|https://api.test/v1/a",
            "501 the case has no answer",
            "",
        ),
        case("ack", "", charge).replace("'drop'\nreason = ''", "'ack'"),
        case(
            &sent.replace('5', "6"),
            "501 the case has no answer",
            charge,
        ),
        // The rules apply, and requests that they deny are not sent.
        "[[case]]\nbody = 'fetch:GET|https://api.test/v2'\noutcome = 'drop'\n\
         [[case.http]]\nrequest = 'GET https://api.test/v2'\n"
            .to_owned(),
        case(
            "fetch:GET|https://api.test/v1|b=x",
            "200 ",
            "[[case.http]]\nrequest = 'GET https://api.test/v1'\n",
        ),
    ]
    .concat());
    assert_eq!(ended.code, 1, "{ended:?}");
    for line in [
        "FAIL  case 1: did not expect the request `GET https://api.test/v1/a`, got drop: 501 the case has no answer",
        "FAIL  case 2: expected the request `POST https://api.test/v1/charges?a=b cents=5`, got ack",
        "FAIL  case 3: expected the request `POST https://api.test/v1/charges?a=b cents=5`, and it sent \
         `POST https://api.test/v1/charges?a=b cents=6`, got drop: 501 the case has no answer",
        "ok    case 5",
        "1 passed, 4 failed",
    ] {
        assert!(
            ended.stdout.lines().any(|l| l == line),
            "{line}\n{}",
            ended.stdout
        );
    }
    let denied =
        "FAIL  case 4: expected the request `GET https://api.test/v2`, got drop: Error::Denied";
    assert!(ended.stdout.contains(denied), "{}", ended.stdout);

    for (http, complaint) in [
        (
            "request = 'charges'",
            "case 1: `http`: `request` is not like",
        ),
        ("request = 'GET http://a/'\nstatus = 99", "`status`: 99"),
        (
            "request = 'GET http://a/'\nheaders = { 'a b' = '' }",
            "`headers`: `a b`",
        ),
    ] {
        let ended = run(&case("ack", "", &format!("[[case.http]]\n{http}")));
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{complaint}: {ended:?}");
    }
}

/// The publishing guest, with two destinations.
fn test_publishing(table: &str, arguments: &[&str]) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let (cases, config) = (
        dir.path().join("cases.toml"),
        dir.path().join("hostler.toml"),
    );
    std::fs::write(&cases, table).unwrap();
    let grants =
        "[grant.publish]\ninvoices = 'stream:invoices'\nraw = { to = 'list:raw', codec = 'raw' }\n";
    std::fs::write(&config, grants).unwrap();
    let handler = hostler_tests::guests::guest("publishing");
    let paths = [&handler, &cases, &config].map(|path| path.to_str().unwrap());
    let mut command = hostler(["test", paths[0], paths[1], "--config", paths[2]]);
    command.args(["--timeout", "50s", "--cpu", "50s"]);
    end(command.args(arguments))
}

#[test]
fn cases_compare_what_an_ack_publishes() {
    let ended = test_publishing(
        r#"
        [[case]]
        name = "all of it"
        body = 'publish:invoices:{ "id": 1 }+header:invoices:tenant=7+later:invoices:60000:l+publish:raw:b'
        outcome = "ack"
        [[case.published]]
        to = "invoices"
        json = { id = 1 }
        [[case.published]]
        to = "invoices"
        headers = { Tenant = "7" }
        [[case.published]]
        to = "invoices"
        delay = "1m"
        [[case.published]]
        to = "raw"
        body = "b"

        [[case]]
        name = "nothing is compared"
        body = 'publish:invoices:x'
        outcome = "ack"

        [[case]]
        name = "nothing is published"
        outcome = "ack"
        published = []

        [[case]]
        name = "another destination"
        body = 'publish:invoices:x'
        outcome = "ack"
        published = [{ to = "raw" }]

        [[case]]
        name = "another body"
        body = 'publish:invoices:x+publish:invoices:0123456789012345678901234567890a'
        outcome = "ack"
        published = [{ to = "invoices" }, { to = "invoices", body = "0123456789012345678901234567890b" }]

        [[case]]
        name = "other JSON"
        body = 'publish:invoices:{"id":2}'
        outcome = "ack"
        published = [{ to = "invoices", json = { id = 1 } }]

        [[case]]
        name = "another header"
        body = 'header:invoices:tenant=8'
        outcome = "ack"
        published = [{ to = "invoices", headers = { tenant = "7" } }]

        [[case]]
        name = "no header"
        body = 'publish:invoices:x'
        outcome = "ack"
        published = [{ to = "invoices", headers = { tenant = "7" } }]

        [[case]]
        name = "another delay"
        body = 'later:invoices:1000:x'
        outcome = "ack"
        published = [{ to = "invoices", delay = "2s" }]

        [[case]]
        name = "a delay"
        body = 'later:invoices:1000:x'
        outcome = "ack"
        published = [{ to = "invoices", delay = "0s" }]

        [[case]]
        name = "one too many"
        body = 'publish:invoices:x'
        outcome = "ack"
        published = []

        [[case]]
        name = "another outcome"
        body = 'publish:invoices:x+publish:raw:y+nack'
        outcome = "ack"
        published = [{ to = "invoices" }]
        "#,
        &[],
    );
    assert_eq!(ended.code, 1, "{ended:?}");
    for line in [
        "ok    all of it",
        "ok    nothing is compared",
        "ok    nothing is published",
        "FAIL  another destination: expected message 1 to go to `raw`, not to `invoices`, got ack",
        "      would publish to invoices: x",
        "FAIL  another body: expected message 2 (to `invoices`) to have the body `…12345678901234567890b`, not \
         `…12345678901234567890a`, got ack",
        "FAIL  other JSON: expected message 1 (to `invoices`) to have the body `{\"id\":1}`, not `{\"id\":2}`, got ack",
        "FAIL  another header: expected message 1 (to `invoices`) to have the header `tenant` = `7`, not `8`, got ack",
        "      would publish to invoices with tenant=8: ",
        "FAIL  no header: expected message 1 (to `invoices`) to have the header `tenant` = `7`, and it is missing, got ack",
        "FAIL  another delay: expected message 1 (to `invoices`) to have the delay 2s, not 1s, got ack",
        "      would publish to invoices after 1s: x",
        "FAIL  a delay: expected message 1 (to `invoices`) to have no delay, got ack",
        "FAIL  one too many: expected 0 published messages, not 1, got ack",
        "FAIL  another outcome: expected ack, got nack-requeue",
        "      would publish and set nothing (2 held effects are discarded)",
        "3 passed, 9 failed",
    ] {
        let mut lines = ended.stdout.lines();
        assert!(lines.any(|l| l == line), "{line}\n{}", ended.stdout);
    }
    for (table, complaint) in [
        (
            "[[case]]\noutcome = 'drop'\npublished = [{ to = 'a' }]",
            "`published` does not go with this outcome",
        ),
        (
            "[[case]]\noutcome = 'ack'\npublished = [{ to = 'a' }, { to = 'a', body = '', json = 1 }]",
            "published message 2: more than one content",
        ),
        (
            "[[case]]\noutcome = 'ack'\npublished = [{ to = 'a', delay = 'x' }]",
            "published message 1: `delay`",
        ),
    ] {
        let ended = test_publishing(table, &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (64, ""), "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{complaint}: {ended:?}");
    }
}

#[test]
fn cases_give_and_compare_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (cases, config) = (
        dir.path().join("cases.toml"),
        dir.path().join("hostler.toml"),
    );
    let grants =
        "[grant.publish]\ninvoices = 'stream:invoices'\n[grant.key-value]\nprefix = '{test}:kv:'\n";
    std::fs::write(&config, grants).unwrap();
    let handler = hostler_tests::guests::guest("keyed");
    let paths = [&handler, &cases, &config].map(|path| path.to_str().unwrap());
    let test = |table: &str, arguments: &[&str]| {
        std::fs::write(&cases, table).unwrap();
        let mut command = hostler(["test", paths[0], paths[1]]);
        command.args(["--timeout", "50s", "--cpu", "50s"]);
        end(command.args(arguments))
    };
    let with_config = ["--config", paths[2]];
    let ended = test(
        r#"
        [[case]]
        name = "all of it"
        body = "add:total+lasting:60000:seen=1+delete:old"
        outcome = "ack"
        [case.key-value]
        total = "5"
        [[case.written]]
        key = "total"
        json = 6
        [[case.written]]
        key = "seen"
        ttl = "1m"
        [[case.written]]
        key = "old"
        deleted = true

        [[case]]
        name = "the values of another case are gone"
        body = "find:total"
        outcome = "ack"
        written = []

        [[case]]
        name = "a number is added at once"
        body = "increment:total:2"
        outcome = "drop"
        reason = "7"
        [case.key-value]
        total = "5"

        [[case]]
        name = "another value"
        body = "set:total=6"
        outcome = "ack"
        written = [{ key = "total", value = "7" }]

        [[case]]
        name = "no value"
        body = "delete:total"
        outcome = "ack"
        written = [{ key = "total", value = "7" }]

        [[case]]
        name = "a value"
        body = "set:total=6"
        outcome = "ack"
        written = [{ key = "total", deleted = true }]

        [[case]]
        name = "another time"
        body = "set:total=6"
        outcome = "ack"
        written = [{ key = "total", ttl = "1m" }]

        [[case]]
        name = "another key"
        body = "lasting:60000:total=6+set:more=1"
        outcome = "ack"
        written = [{ key = "total" }]

        [[case]]
        name = "another outcome"
        body = "set:total=6+publish:invoices:x+nack"
        outcome = "ack"
        "#,
        &with_config,
    );
    assert_eq!(ended.code, 1, "{ended:?}");
    for line in [
        "ok    all of it",
        "ok    the values of another case are gone",
        "ok    a number is added at once",
        "FAIL  another value: expected the key `total` to have the value `7`, not `6`, got ack",
        "      would set total: 6",
        "FAIL  no value: expected the key `total` to be set, got ack",
        "      would delete total",
        "FAIL  a value: expected the key `total` to be deleted, got ack",
        "FAIL  another time: expected the key `total` to expire after 1m, not never, got ack",
        "FAIL  another key: expected that the key `more` is not written, got ack",
        "      would set total for 1m: 6",
        "FAIL  another outcome: expected ack, got nack-requeue",
        "      would publish and set nothing (2 held effects are discarded)",
        "3 passed, 6 failed",
    ] {
        let mut lines = ended.stdout.lines();
        assert!(lines.any(|l| l == line), "{line}\n{}", ended.stdout);
    }
    let case = "[[case]]\nbody = 'lasting:60000:a=1+delete:b'\noutcome = 'ack'\n";
    let ended = test(case, &["--config", paths[2], "--json"]);
    let json: Json = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    let set =
        serde_json::json!([{ "key": "a", "value": "1", "value_base64": null, "ttl_ms": 60_000 }]);
    assert_eq!(
        (&json["set"], &json["deleted"]),
        (&set, &serde_json::json!(["b"]))
    );
    let wrong = "[[case]]\noutcome = 'ack'\nwritten = [{ key = 'a', deleted = true, value = '1' }]";
    let ended = test(wrong, &with_config);
    assert_eq!(ended.code, 64, "{ended:?}");
    let said = "`written`: a deleted key has no value and no `ttl`";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

/// Run a table against a guest, with a grant.
fn test_granted(guest: &str, grant: &str, table: &str) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hostler.toml"), grant).unwrap();
    std::fs::write(dir.path().join("cases.toml"), table).unwrap();
    let handler = hostler_tests::guests::guest(guest);
    let mut command = hostler(["test", handler.to_str().unwrap(), "cases.toml"]);
    command.args("--config hostler.toml --timeout 50s --cpu 50s".split(' '));
    end(command.current_dir(dir.path()))
}

fn expect_lines(ended: &Ended, lines: &[&str]) {
    for line in lines {
        let mut all = ended.stdout.lines();
        assert!(all.any(|l| l == *line), "{line}\n{}", ended.stdout);
    }
}

#[test]
fn cases_give_and_compare_what_is_remembered() {
    let ended = test_granted(
        "durable",
        "[grant.journal]\n",
        r#"
        [[case]]
        name = "the first attempt"
        body = "once:id=1+trap,recall:id"
        outcome = "fault"
        log = ["makes 1"]
        remembered = [{ name = "id", json = 1 }]

        [[case]]
        name = "the second attempt"
        continues = true
        outcome = "drop"
        reason = "1"

        [[case]]
        name = "another message"
        body = "recall:id"
        outcome = "drop"
        reason = "nothing"
        remembered = []

        [[case]]
        name = "an earlier attempt"
        body = "recall:id"
        outcome = "drop"
        reason = "7"
        journal = [{ name = "id", value = "5" }, { name = "id", json = 7 }]

        [[case]]
        name = "another value"
        body = "remember:id=2+ack"
        outcome = "ack"
        remembered = [{ name = "id", value = "1" }]

        [[case]]
        name = "no value"
        body = "ack"
        outcome = "ack"
        remembered = [{ name = "id", value = "1" }]

        [[case]]
        name = "one more"
        body = "remember:id=2+ack"
        outcome = "ack"
        remembered = []
        "#,
    );
    assert_eq!(ended.code, 1, "{ended:?}");
    let lines = [
        "ok    the first attempt",
        "ok    the second attempt",
        "ok    another message",
        "ok    an earlier attempt",
        "FAIL  another value: expected that `id` is remembered as `1`, not `2`, got ack",
        "FAIL  no value: expected that `id` is remembered, got ack",
        "FAIL  one more: expected that `id` is not remembered, got ack",
    ];
    expect_lines(&ended, &lines);

    for (case, complaint) in [
        ("continues = true", "`continues`: there is no case before"),
        (
            "[[case]]\noutcome = 'ack'\ncontinues = true\nbody = 'x'",
            "case 2: `continues` does not go with a message",
        ),
        ("journal = [{ name = 'a' }]", "`journal`: `a` has no value"),
        (
            "remembered = [{ name = 'a', value = '1', json = 1 }]",
            "`remembered`: more than one content",
        ),
    ] {
        let table = format!("[[case]]\noutcome = 'ack'\n{case}\n");
        let ended = test_granted("durable", "[grant.journal]\n", &table);
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(complaint), "{complaint}: {ended:?}");
    }
}

#[test]
fn cases_compare_what_is_replied() {
    let ended = test_granted(
        "replying",
        "",
        r#"
        [[case]]
        body = "answer:paid"
        outcome = "ack"
        reply = { value = "paid" }

        [[case]]
        body = '{"total":9.5}'
        outcome = "ack"
        reply = { json = { total = 9.5 } }

        [[case]]
        body = "ack"
        outcome = "ack"
        reply = { none = true }

        [[case]]
        body = "answer:lost+nack"
        outcome = "nack-requeue"
        reply = { none = true }

        [[case]]
        name = "another"
        body = "answer:paid"
        outcome = "ack"
        reply = { value = "late" }

        [[case]]
        name = "one too many"
        body = "answer:paid"
        outcome = "ack"
        reply = { none = true }

        [[case]]
        name = "none"
        body = "ack"
        outcome = "ack"
        reply = {}
        "#,
    );
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("4 passed, 3 failed"), "{ended:?}");
    let lines = [
        "FAIL  another: expected the reply `late`, not `paid`, got ack",
        "FAIL  one too many: expected no reply, got ack",
        "FAIL  none: expected a reply, got ack",
    ];
    expect_lines(&ended, &lines);
}

#[test]
fn a_case_that_continues_gets_recorded_answers_and_sums() {
    let ended = test_granted(
        "outbound",
        "[[grant.http]]\nhost = 'api.test'\njournal = true\n\
         [grant.secret]\nneeded = { variable = 'PATH', expose = true }\n",
        r#"
        [[case]]
        name = "the server has no room"
        body = "send:POST|https://api.test/a|b=1+fetch:POST|https://api.test/b|b=2,fetch:POST|https://api.test/a|b=1"
        outcome = "drop"
        reason = "503 "
        [[case.http]]
        request = "POST https://api.test/a"
        body = "first"
        [[case.http]]
        request = "POST https://api.test/b"
        status = 503

        [[case]]
        name = "the next attempt sends nothing"
        continues = true
        outcome = "drop"
        reason = "200 first"
        "#,
    );
    ended.ok();
    let ended = test_granted(
        "keyed",
        "[grant.publish]\ninvoices = 'stream:invoices'\n\
         [grant.key-value]\nprefix = '{test}:kv:'\njournal = true\n",
        r#"
        [[case]]
        body = "quiet:increment:sum:3+trap,increment:sum:3"
        outcome = "fault"

        [[case]]
        continues = true
        outcome = "drop"
        reason = "3"
        [case.key-value]
        sum = "10"
        "#,
    );
    ended.ok();
}

#[test]
fn cases_compare_holds_which_the_file_allows_and_no_attempt_is_charged() {
    let table = r#"
        [[case]]
        name = "longer than a day"
        body = "hold:90000000+nack,ack"
        outcome = "nack-requeue"
        held = true

        [[case]]
        name = "the same attempt again"
        continues = true
        outcome = "nack-requeue"
        held = true

        [[case]]
        body = "nack"
        outcome = "nack-requeue"
        held = false
        "#;
    let ended = test_granted("holding", "[hold]\nmax_age = '30d'\n", table).ok();
    assert!(ended.stdout.contains("3 passed, 0 failed"), "{ended:?}");
    let ended = test_granted("holding", "", table);
    assert_eq!(ended.code, 1, "{ended:?}");
    expect_lines(
        &ended,
        &["FAIL  longer than a day: expected a hold, got nack-requeue"],
    );
}
