//! The dashboard, by HTTP: what it shows, and who may act.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use hostler::delivery::policy::Reason;
use hostler::wire::dead_letter::RECORDING;
use hostler_tests::command::{Host, end, hostler, run};
use hostler_tests::guests::guest;
use hostler_tests::redis::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A dashboard that runs as a process of its own.
struct Dashboard {
    process: Host,
    address: String,
}

impl Dashboard {
    fn start(scene: &Scene, with_token: bool) -> Self {
        Self::trying(scene, with_token, &[])
    }

    /// With these handlers to try.
    fn trying(scene: &Scene, with_token: bool, handlers: &[&Path]) -> Self {
        let file = scene.server.dir().join("token");
        std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
        let url = scene.server.url();
        let mut command = hostler(["ui", "--redis", &url, "--listen", "127.0.0.1:0"]);
        if with_token {
            command.arg("--token-file").arg(&file);
        }
        for handler in handlers {
            command.arg("--try").arg(handler);
        }
        let mut process = Host::spawn(command);
        process.says("/ui ", 1);
        let said = process.stderr();
        let (_, rest) = said.split_once("http://").unwrap();
        let address = rest.split_once("/ui").unwrap().0.to_owned();
        Self { process, address }
    }

    /// Send a request with these headers and this body: status, headers, body.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, String) {
        send(&self.address, method, path, headers, body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.send("GET", path, &[], "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Act with the token, confirmed.
    fn act(&self, action: &str, on: &str, more: &Value) -> (u16, Value) {
        let mut body = json!({ "on": on, "confirm": on });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let headers = [
            ("Content-Type", "application/json"),
            ("X-Hostler-Token", TOKEN),
            ("Origin", &*format!("http://{}", self.address)),
        ];
        let path = format!("/ui/api/act/{action}");
        let (status, _, body) = self.send("POST", &path, &headers, &body.to_string());
        (
            status,
            serde_json::from_str(&body).unwrap_or(Value::String(body)),
        )
    }
}

/// Send a request to this address: status, headers, body.
fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_reads_nothing() {
    let scene = Scene::new(Kind::Stream).await;
    let host = scene.binary().admin().flag("ui", "true").ready().await;
    let ui = Dashboard::start(&scene, false);
    let admin = host.admin_address();
    let paths = [
        "/metrics",
        "/live",
        "/ready",
        "/status",
        "/ui",
        "/ui/app.js",
        "/ui/api/queues",
    ];
    for (address, paths) in [(&admin, &paths[..]), (&ui.address, &paths[4..])] {
        for path in paths {
            let status = |headers: &[(&str, &str)]| send(address, "GET", path, headers, "").0;
            // Probes and scrapers say nothing, and the page what it is.
            assert_eq!(status(&[]), 200, "{path}");
            assert_eq!(status(&[("Sec-Fetch-Site", "same-origin")]), 200, "{path}");
            let evil = [("Host", "evil.example")];
            assert_eq!(status(&evil), 421, "{path}");
            for foreign in [
                ("Sec-Fetch-Site", "cross-site"),
                ("Sec-Fetch-Site", "same-site"),
                ("Origin", "http://evil.example"),
            ] {
                assert_eq!(status(&[foreign]), 403, "{path} {foreign:?}");
            }
            let opened = [
                ("Sec-Fetch-Site", "cross-site"),
                ("Sec-Fetch-Mode", "navigate"),
                ("Sec-Fetch-Dest", "document"),
            ];
            assert_eq!(status(&opened), 200, "{path}: a person follows a link");
        }
    }
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_has_no_outside_resource_and_no_inline_script() {
    let scene = Scene::new(Kind::Stream).await;
    let ui = Dashboard::start(&scene, false);
    let (status, head, page) = ui.send("GET", "/ui", &[], "");
    assert_eq!(status, 200);
    let policy = head
        .lines()
        .find_map(|l| l.strip_prefix("content-security-policy: "))
        .unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    for header in [
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert!(
        !page.contains("<script>") && !page.contains("style=") && !page.contains(" onclick"),
        "{page}"
    );
    for (path, kind) in [
        ("/ui/app.js", "text/javascript"),
        ("/ui/app.css", "text/css"),
        ("/ui/uplot.js", "text/javascript"),
        ("/ui/uplot.css", "text/css"),
    ] {
        let (status, head, text) = ui.send("GET", path, &[], "");
        assert!(status == 200 && head.contains(kind), "{head}");
        // Where it comes from: a remark.
        let text = text.replace("https://github.com/leeoniya/uPlot (v", "");
        // Text that comes from Redis is never read as markup, and nothing comes from elsewhere.
        for never in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "https://",
            "@import",
            "url(",
        ] {
            assert!(!text.contains(never), "{never} in {path}");
        }
    }
    for resource in page.split("src=\"").chain(page.split("href=\"")).skip(1) {
        let target = resource.split('"').next().unwrap();
        let is_own = target.starts_with("/ui/")
            || target.starts_with('#')
            || target == "data:,"
            || target.contains('<');
        assert!(is_own, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_queues_and_dead_letters_as_data() {
    let scene = Scene::new(Kind::Stream).await;
    let flags = "max-deliveries=1 dead-letter-recording=full";
    let host = scene.binary().flags(flags).ready().await;
    scene.send("text:<script>alert(1)</script>+panic").await;
    scene.send("drop:no customer 17").await;
    scene.send("drop:no customer 4").await;
    eventually("they died", async || scene.dead().await.len() == 3).await;
    let ui = Dashboard::start(&scene, false);
    assert_eq!(ui.get("/ui/api/session")["can_act"], false);
    let mut queue = Value::Null;
    eventually("the queue is shown", async || {
        queue = ui.get("/ui/api/queues")[0].clone();
        queue["hosts"] == 1 && queue["dead_letters"] == 3 && queue["state"] == "serving"
    })
    .await;
    assert_eq!(queue["queue"], "orders");
    let one = ui.get("/ui/api/queue?queue=orders&group=workers");
    assert_eq!(one["hosts"][0]["consumer"], host.consumer());
    let course = one["course"].as_array().unwrap();
    let known = course.last().unwrap()["at_ms"].as_u64().unwrap();
    let since = format!("/ui/api/queue?queue=orders&group=workers&since={known}");
    let later = ui.get(&since)["course"].as_array().unwrap().len();
    assert!(later < course.len(), "what the page has is not sent again");
    let dead = ui.get("/ui/api/dead?key=orders%3Adead");
    assert_eq!(
        dead["by_reason"],
        json!({"dropped": 2, "max-deliveries": 1})
    );
    assert!(dead["entries"][0]["body"].is_null(), "a list has no bodies");
    let groups = ui.get("/ui/api/groups?key=orders%3Adead");
    assert_eq!(groups["groups"][0]["signature"], "dropped: no customer #");
    let entries = dead["entries"].as_array().unwrap();
    let crashed = entries
        .iter()
        .find(|e| e["reason"] == "max-deliveries")
        .unwrap();
    let path = format!(
        "/ui/api/letter?key=orders%3Adead&id={}",
        crashed["id"].as_str().unwrap()
    );
    let letter = ui.get(&path);
    assert!(
        letter["log"]
            .as_array()
            .unwrap()
            .contains(&json!("<script>alert(1)</script>"))
    );
    assert_eq!(letter["body"], "text:<script>alert(1)</script>+panic");
    assert_eq!(letter["history"][0]["count"], 1);
    assert!(letter["recording_bytes"].as_u64() > Some(0), "{letter}");
    assert!(!letter["headers"].to_string().contains(RECORDING));
    let source = letter["source_id"].as_str().unwrap();
    let trace = ui.get(&format!("/ui/api/trace?id={source}"));
    let found = trace["found"].as_array().unwrap();
    let died = found.iter().find(|found| found["state"] == "dead").unwrap();
    assert_eq!(died["reason"], "max-deliveries", "{trace}");
    assert_eq!(ui.get("/ui/api/trace?id=nobody")["found"], json!([]));
    for wrong in [
        "/ui/api/queue?queue=nothing",
        "/ui/api/letter?key=orders%3Adead&id=1-1",
    ] {
        assert_eq!(ui.send("GET", wrong, &[], "").0, 404, "{wrong}");
    }
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_can_be_done() {
    let scene = Scene::new(Kind::Stream).await;
    scene.letter("x", Reason::Trap).await;
    let ui = Dashboard::start(&scene, false);
    let (status, answer) = ui.act("purge", "orders:dead", &json!({}));
    assert_eq!(status, 403, "{answer}");
    assert_eq!(scene.dead().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_needs_the_token_the_own_page_and_a_confirmation() {
    let scene = Scene::new(Kind::Stream).await;
    scene.letter("x", Reason::Trap).await;
    let mut ui = Dashboard::start(&scene, true);
    assert_eq!(ui.get("/ui/api/session")["can_act"], true);
    let body = json!({ "on": "orders:dead", "confirm": "orders:dead" }).to_string();
    let path = "/ui/api/act/purge";
    let json_type = ("Content-Type", "application/json");
    let own = format!("http://{}", ui.address);
    let own = ("Origin", &*own);
    for (headers, status) in [
        (vec![json_type, own], 401),
        (vec![json_type, own, ("X-Hostler-Token", "wrong")], 401),
        (vec![json_type, own, ("X-Hostler-Token", &TOKEN[1..])], 401),
        (
            vec![
                json_type,
                ("Origin", "http://evil.example"),
                ("X-Hostler-Token", TOKEN),
            ],
            403,
        ),
        (
            vec![json_type, ("Origin", "null"), ("X-Hostler-Token", TOKEN)],
            403,
        ),
        // What a form of another page can send.
        (
            vec![("Content-Type", "text/plain"), ("X-Hostler-Token", TOKEN)],
            415,
        ),
        // A name that an attacker makes point at this machine.
        (
            vec![
                json_type,
                ("Host", "evil.example"),
                ("X-Hostler-Token", TOKEN),
            ],
            421,
        ),
    ] {
        let (found, _, answer) = ui.send("POST", path, &headers, &body);
        assert_eq!(found, status, "{headers:?}: {answer}");
    }
    let (status, _, answer) = ui.send("GET", "/ui/api/queues", &[("Host", "evil.example")], "");
    assert_eq!(status, 421, "{answer}");
    let (status, answer) = ui.act("purge", "orders:dead", &json!({ "confirm": "orders" }));
    assert_eq!(status, 400, "{answer}");
    let (status, _) = ui.act("explode", "orders:dead", &json!({}));
    assert_eq!(status, 404);
    assert_eq!(scene.dead().await.len(), 1, "nothing was done");

    assert_eq!(ui.act("sign-in", "hostler", &json!({})).0, 200);
    let signing = ("X-Hostler-Token", "wrong");
    let path = "/ui/api/act/sign-in";
    assert_eq!(
        ui.send("POST", path, &[json_type, own, signing], &body).0,
        401
    );

    let (status, answer) = ui.act("purge", "orders:dead", &json!({}));
    assert_eq!((status, &answer["purged"]), (200, &json!(1)), "{answer}");
    assert!(scene.dead().await.is_empty());
    let used = "\"message\":\"the dashboard was used\",\"action\":\"purge\"";
    ui.process.says(used, 1);
    let log = ui.process.stderr();
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_does_what_its_command_does() {
    let scene = Scene::new(Kind::Stream).await;
    let host = scene.binary().flags("accept-deploys=true").ready().await;
    let ui = Dashboard::start(&scene, true);
    let id = scene.letter("ack", Reason::Trap).await;
    scene.letter("ack", Reason::Dropped).await;
    let (status, answer) = ui.act("replay", "orders:dead", &json!({ "id": id }));
    assert_eq!((status, &answer["replayed"]), (200, &json!(1)), "{answer}");
    let (_, answer) = ui.act("purge", "orders:dead", &json!({ "reason": "dropped" }));
    assert_eq!(answer["purged"], 1);
    assert_eq!(ui.act("pause", "orders", &json!({})).0, 200);
    host.logs("paused").await;
    let message = scene.raw.add("orders", "ack").await;
    let asked = json!({ "id": message, "group": "workers" });
    let (status, answer) = ui.act("cancel", "orders", &asked);
    assert_eq!(
        (status, &answer["cancel"]),
        (200, &json!("cancelled")),
        "{answer}"
    );
    assert_eq!(ui.act("resume", "orders", &json!({})).0, 200);
    host.logs("resumed").await;
    let cap = json!({ "setting": "backoff.first", "value": "7s" });
    assert_eq!(ui.act("policy", "orders", &cap).0, 200);
    let url = scene.server.url();
    let policies = run([
        "policy", "get", "--redis", &url, "--queue", "orders", "--json",
    ])
    .ok()
    .json();
    assert_eq!(policies[0]["value"], "7s");
    // As `hostler policy` checks it.
    scene.raw.ask("RPUSH letters x").await;
    let many = "x".repeat(5000);
    for (setting, value, part) in [
        ("concurrency", "7", "cannot be set by a policy"),
        ("dead_letter.key", "letters", "holds a list"),
        ("dead_letter.routes", "dropped=letters", "holds a list"),
        ("no_such", "7", "unknown setting"),
        ("dead_letter.key", &*many, "longer than"),
    ] {
        let wrong = json!({ "setting": setting, "value": value });
        let (status, answer) = ui.act("policy", "orders", &wrong);
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(part), "{answer}");
    }
    let removed = json!({ "setting": "backoff.first" });
    assert_eq!(ui.act("policy", "orders", &removed).0, 200);
    let (status, answer) = ui.act("rollback", "orders", &json!({}));
    assert_eq!(status, 400, "nothing was deployed: {answer}");
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_shown_run_and_paused() {
    let scene = Scene::new(Kind::Stream).await;
    scene
        .raw
        .ask("XGROUP CREATE orders workers 0 MKSTREAM")
        .await;
    let ui = Dashboard::start(&scene, true);
    let url = scene.server.url();
    let add = [
        "schedule", "add", "nightly", "--redis", &url, "--stream", "orders",
    ];
    let when = ["--group", "workers", "--cron", "30 2 * * *"];
    run(add.iter().chain(&when)).ok();
    let shown = || ui.get("/ui/api/queue?queue=orders&group=workers")["queue"]["schedules"].clone();
    let one = &shown()[0];
    assert_eq!(
        (&one["name"], &one["paused"]),
        (&json!("nightly"), &json!(false))
    );
    assert_eq!(one["next_ms"].as_array().unwrap().len(), 3);
    let named = json!({ "schedule": "nightly" });
    assert_eq!(ui.act("schedule-pause", "orders", &named).0, 200);
    assert_eq!(shown()[0]["paused"], json!(true));
    assert_eq!(ui.act("schedule-resume", "orders", &named).0, 200);
    assert_eq!(shown()[0]["paused"], json!(false));
    assert_eq!(ui.act("schedule-run", "orders", &named).0, 200);
    assert_eq!(scene.raw.number("ZCARD {orders}:ticks").await, 2);
    let unknown = json!({ "schedule": "other" });
    assert_eq!(ui.act("schedule-run", "orders", &unknown).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_tried_with_a_handler_that_the_operator_named_and_no_other() {
    let scene = Scene::new(Kind::Stream).await;
    let trapped = scene.letter("text:hello+trap", Reason::Trap).await;
    let fine = scene.letter("ack", Reason::Trap).await;
    let file = guest("scripted");
    let mut ui = Dashboard::trying(&scene, true, &[&file]);
    let name = file.file_name().unwrap().to_str().unwrap();
    let handlers = ui.get("/ui/api/session")["handlers"].clone();
    assert_eq!(handlers[0]["name"], name);
    let trial = |id: &str, handler: &str| {
        ui.act(
            "try",
            "orders:dead",
            &json!({ "id": id, "handler": handler }),
        )
    };
    let (status, verdict) = trial(&trapped, name);
    assert_eq!(status, 200, "{verdict}");
    assert_eq!(
        (&verdict["verdict"], &verdict["fault"]),
        (&json!("fault"), &json!("trap"))
    );
    assert!(
        verdict["log"].as_array().unwrap().contains(&json!("hello")),
        "{verdict}"
    );
    assert_eq!(verdict["handler"], handlers[0]["digest"]);
    let (_, verdict) = trial(&fine, name);
    assert_eq!(verdict["verdict"], "ack");
    assert!(verdict["duration_us"].as_u64().unwrap() > 0);
    // A path is a name that was not given.
    let path = file.display().to_string();
    for (id, handler, status) in [
        (&*fine, &*path, 400),
        (&*fine, "", 400),
        (&*fine, "../scripted.wasm", 400),
        ("1-1", name, 404),
    ] {
        let (found, answer) = trial(id, handler);
        assert_eq!(found, status, "{handler}: {answer}");
    }
    let (status, answer) = ui.act("try", "orders:dead", &json!({ "id": fine, "confirm": "x" }));
    assert_eq!(status, 400, "{answer}");
    assert_eq!(scene.dead().await.len(), 2, "nothing is written");
    ui.process.says("\"action\":\"try\"", 3);
    // Nothing can be tried without a token, or without a handler.
    let alone = hostler(["ui", "--redis", &scene.server.url(), "--try", &path]);
    assert_eq!(end(&mut { alone }).code, 64);
    let none = Dashboard::start(&scene, true);
    let (status, answer) = none.act(
        "try",
        "orders:dead",
        &json!({ "id": fine, "handler": name }),
    );
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_serves_the_dashboard_beside_its_metrics() {
    let scene = Scene::new(Kind::Stream).await;
    let host = scene.binary().admin().flag("ui", "true").ready().await;
    for path in ["/ui", "/ready"] {
        assert_eq!(host.get(path).0, 200, "{path}");
    }
    host.drained().await;
    let alone = scene.binary().flag("ui", "true").end().await;
    alone.expect_code(64);
    let short = scene.server.dir().join("short");
    std::fs::write(&short, "guessed").unwrap();
    let refused = scene.binary().admin().flag("ui", "true");
    let refused = refused
        .flag("ui-token-file", &short.display().to_string())
        .end()
        .await;
    refused.expect_code(64);
    assert!(
        refused.stderr().contains("openssl rand"),
        "{}",
        refused.stderr()
    );
}

mod measured {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_of_dead_letters_hold_no_bodies() {
        for kind in [Kind::Stream, Kind::List] {
            let scene = Scene::new(kind).await;
            let reason = [
                ("x-dead-letter-reason", "trap"),
                ("x-dead-letter-source", scene.key()),
            ];
            for n in 0..16 {
                let mut body = vec![b'x'; 8 << 20];
                body[0] = n;
                scene.put(scene.dead_key(), body, &reason).await;
            }
            let ui = Dashboard::start(&scene, false);
            let path = format!("/ui/api/dead?key={}&limit=200", scene.dead_key());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let dead = ui.get(&path);
                        assert_eq!(dead["total"], 16, "{dead}");
                        let rows = dead["entries"].as_array().unwrap();
                        assert_eq!(rows.len(), 16);
                        assert!(rows.iter().all(|row| row["reason"] == "trap"), "{rows:?}");
                    });
                }
            });
            let status = std::fs::read_to_string(format!("/proc/{}/status", ui.process.pid()));
            let status = status.unwrap();
            let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let most = most.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
            let most: u64 = most.unwrap();
            println!("{kind:?}: {} MiB at most", most >> 10);
            // Of a list, two values are read and four mark the end: they are whole, and copied while they are read.
            assert!(most < 320 << 10, "{kind:?}: {most} KiB");
        }
    }
}
