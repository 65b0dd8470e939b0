//! Grants outside the sandbox in a host that serves a queue: metrics, events, secrets that nothing shows,
//! values that change.

use std::fs;

use hostler_tests::command::run;
use hostler_tests::guests::guest;
use hostler_tests::redis::eventually;
use hostler_tests::web::Web;

use crate::grants::outbound_scene::{rule, url};
use crate::runtime::e2e_scene::Scene;

/// What no output may show.
const SECRET: &str = "pl4nted-s3cr3t-0xC0FFEE";

#[tokio::test]
async fn a_host_calls_servers_counts_by_rule_and_shows_no_secret() {
    let mut scene = Scene::new().await;
    let web = Web::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stripe");
    fs::write(&file, SECRET).unwrap();
    let config = dir.path().join("orders.toml");
    let headers = "name = \"stripe\"\nheaders.authorization = \"Bearer ${secret:stripe}\"\n";
    fs::write(
        &config,
        format!(
            "{}[[grant.http]]\nhost = \"localhost\"\n\
             [grant.secret]\nstripe = {{ file = \"{}\", expose = true }}\n\
             variable = {{ variable = \"PLANTED\" }}\n",
            rule(&web, headers),
            file.display()
        ),
    )
    .unwrap();
    let options = scene
        .host()
        .cap(1)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .variable("PLANTED", SECRET)
        .admin();
    let host = options.ready().await;
    let charge = format!("send:POST|{}|b=charge", url(&web, "/ok"));
    let first = scene.publish(&charge).await;
    for bad in [
        format!("send:GET|{}", url(&web, "/status/503")),
        "send:GET|http://169.254.169.254/latest/meta-data".to_owned(),
        "send:GET|https://localhost/".to_owned(),
        "secret:none".to_owned(),
        "secret:variable".to_owned(),
    ] {
        scene.publish(&bad).await;
    }
    let look = scene.emptied().await;
    let seen = web.seen();
    let charged = seen.iter().find(|seen| seen.body == b"charge").unwrap();
    let key = format!("orders/workers/{first}#1");
    assert_eq!(charged.header("idempotency-key"), Some(&*key));
    assert_eq!(
        charged.header("authorization"),
        Some(&*format!("Bearer {SECRET}"))
    );

    let metrics = host.metrics();
    for series in [
        "hostler_http_requests_total{rule=\"stripe\",end=\"2xx\"} 1",
        "hostler_http_requests_total{rule=\"stripe\",end=\"5xx\"} 1",
        "hostler_http_requests_total{rule=\"localhost\",end=\"denied\"} 1",
        "hostler_http_requests_total{rule=\"none\",end=\"denied\"} 1",
        "hostler_http_request_seconds_count{rule=\"stripe\"} 2",
    ] {
        let plain = hostler_tests::host::without_queue(&metrics);
        assert!(plain.contains(series), "{series}: {plain}");
    }
    // One event for each denial, with the rule that would allow it. The log may be behind Redis.
    for denied in ["169.254.169.254", "https://localhost/"] {
        eventually("a denial is logged", async || {
            host.count(|line| {
                line.text("denied")
                    .is_some_and(|text| text.contains(denied))
            }) > 0
        })
        .await;
    }
    let denials: Vec<_> = host
        .log()
        .into_iter()
        .filter(|line| line.message() == "a handler wanted what it is not granted")
        .collect();
    let allowed_by = |denied: &str| {
        let mut found = denials
            .iter()
            .filter(|l| l.text("denied").unwrap().contains(denied));
        let line = found
            .next()
            .unwrap_or_else(|| panic!("{denied}: {denials:?}"));
        assert!(found.next().is_none(), "one event");
        line.text("allowed_by").unwrap().to_owned()
    };
    assert_eq!(
        allowed_by("169.254.169.254"),
        "[[grant.http]] with scheme = \"http\", host = \"169.254.169.254\", methods = [\"GET\"]"
    );
    assert!(allowed_by("https://localhost/").contains("`networks` in the rule `localhost`"));

    let status = host.get("/status").1;
    let ended = host.drained().await;
    let config = config.display().to_string();
    let url = scene.server.url();
    let shown = [
        metrics,
        status,
        ended.stderr(),
        format!("{look:?}"),
        format!("{:?}", run(["check", "--config", &config])),
        format!("{:?}", run(["check", "--config", &config, "--json"])),
        format!(
            "{:?}",
            run(["dlq", "peek", "--redis", &url, "orders:dead", "--json"])
        ),
        format!(
            "{:?}",
            run([
                "inspect", "--redis", &url, "--stream", "orders", "--group", "workers", "--json"
            ])
        ),
    ];
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn a_host_does_not_start_without_a_file_that_a_grant_names() {
    let scene = Scene::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    fs::write(
        &config,
        "[[grant.http]]\nhost = \"a.test\"\nca = \"/nowhere/ca.pem\"\n\
         [grant.secret]\nstripe = { file = \"/nowhere/stripe\" }\nother = { variable = \"NOT_SET\" }\n",
    )
    .unwrap();
    let options = scene.host().flag("config", &config.display().to_string());
    let ended = options.end().await;
    ended.expect_code(64);
    let said = ended.stderr();
    for part in ["/nowhere/ca.pem", "/nowhere/stripe", "NOT_SET is not set"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test]
async fn values_of_the_configuration_change_while_the_host_runs() {
    let mut scene = Scene::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    fs::write(&config, "[grant.config]\nregion = \"eu\"\n").unwrap();
    let options = scene
        .host()
        .cap(1)
        .flag("handler", &guest("configured").display().to_string())
        .flag("config", &config.display().to_string());
    let host = options.ready().await;
    scene.publish("config:region").await;
    scene.emptied().await;
    fs::write(&config, "[grant.config]\nregion = \"us\"\n").unwrap();
    host.logs("the values of `grant.config` changed").await;
    let second = scene.publish("config:region").await;
    let look = scene.emptied().await;
    let detail = |id: &str| {
        let dead = look.dead_letters_of(id);
        dead[0].header("x-dead-letter-detail").unwrap().to_owned()
    };
    assert_eq!(detail(&second), "us");
    eventually("nothing is left", async || scene.look().await.is_empty()).await;
}

#[test]
fn check_lists_imports_with_the_toml_that_grants_them() {
    let file = guest("outbound").display().to_string();
    let refused = run(["check", &file]);
    assert_eq!(refused.code, 65, "{refused:?}");
    for part in [
        "[[grant.http]]",
        "[grant.secret]",
        "hostler:handler/http@1.2.0",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    let granted = run([
        "check",
        &file,
        "--grant-http=[{\"host\":\"api.test\"}]",
        "--grant-secret={\"a\":{\"variable\":\"PATH\",\"expose\":true}}",
        "--grant-tcp=[{\"host\":\"db.test\",\"port\":5432}]",
    ]);
    let shown = granted.ok().stdout;
    for part in [
        "by the grant `http`",
        "by the grant `secret`",
        "by the grant `tcp`",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
