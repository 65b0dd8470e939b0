//! Hostile guests, hostile servers and hostile DNS: each is denied or bounded, and the next message works.

use hostler::delivery::outcome::Outcome;
use hostler_tests::redis::eventually;
use hostler_tests::rig::Rig;
use hostler_tests::web::{LineServer, Web};

use crate::grants::outbound_scene::{rig, rule, settings, url};

/// The next message works.
async fn works(rig: &mut Rig, web: &Web) {
    let fetch = format!("fetch:GET|{}", url(web, "/ok"));
    assert_eq!(rig.reason(&fetch).await, "200 ok");
}

#[tokio::test]
async fn a_name_that_resolves_to_an_internal_address_is_denied() {
    let web = Web::start().await;
    let port = web.port();
    // The system resolves this name to the loopback interface; the rule does not name that address.
    let grant = |more: &str| {
        format!("[[grant.http]]\nscheme = \"http\"\nhost = \"localhost\"\nport = {port}\n{more}\n")
    };
    let fetch = format!("fetch:GET|http://localhost:{port}/ok");
    let standard = format!("wasi:GET|http|localhost:{port}|/ok");
    let mut refused = rig(&grant(""));
    let found = refused.reason(&fetch).await;
    assert!(
        found.starts_with("Error::Denied") && found.contains("not an address"),
        "{found}"
    );
    let found = refused.reason(&standard).await;
    assert!(found.contains("HttpRequestDenied"), "{found}");
    // Another network is no help, and neither is a public one.
    let found = rig(&grant("networks = [\"10.0.0.0/8\"]"))
        .reason(&fetch)
        .await;
    assert!(found.starts_with("Error::Denied"), "{found}");
    assert_eq!(web.connections(), 0, "no packet has left");
    // The operator can mean it.
    let mut meant = rig(&grant("networks = [\"127.0.0.0/8\", \"::1\"]"));
    assert_eq!(meant.reason(&fetch).await, "200 ok");
    assert_eq!(meant.reason(&standard).await, "200 ok");
}

#[tokio::test]
async fn every_way_to_write_an_internal_address_is_denied() {
    let web = Web::start().await;
    let port = web.port();
    // Two rules that allow much: none of them names an address.
    let mut rig = rig(&format!(
        "{}[[grant.http]]\nscheme = \"http\"\nhost = \"*.test\"\nport = {port}\n",
        rule(&web, "")
    ));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.1",
        "0",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[64:ff9b::7f00:1]",
        "[::127.0.0.1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "%6c%6f%63alhost",
        "１２７.0.0.1",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "api.test@127.0.0.1",
        "api.test:80@127.0.0.1",
        "api.test%00.evil",
        "api.test\\@127.0.0.1",
        "api.test#@127.0.0.1",
        "evil.example",
        "api.test.evil.example",
    ] {
        for scheme in ["http", "https"] {
            let found = rig
                .reason(&format!("fetch:GET|{scheme}://{host}:{port}/ok"))
                .await;
            assert!(found.starts_with("Error::Denied"), "{host}: {found}");
        }
        let found = rig
            .run(&format!("wasi:GET|http|{host}:{port}|/ok"))
            .await
            .outcome;
        // The standard interface refuses some of them itself: the guest then panics.
        let denied = match &found {
            Outcome::Drop(Some(reason)) => {
                reason.contains("ErrorCode") || reason.contains("Denied")
            }
            Outcome::Fault(_) => true,
            _ => false,
        };
        assert!(denied, "{host}: {found:?}");
    }
    assert_eq!(web.connections(), 0, "no packet has left");
    works(&mut rig, &web).await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let web = Web::start().await;
    let other = Web::start().await;
    let mut rig = rig(&rule(&web, ""));
    for to in [
        format!("http://127.0.0.1:{}/admin", other.port()),
        format!("http://localhost:{}/admin", other.port()),
        "/ok".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let fetch = format!("fetch:GET|{}", url(&web, &format!("/to?{to}")));
        assert_eq!(rig.reason(&fetch).await, "302 elsewhere");
    }
    assert_eq!(other.connections(), 0);
    assert_eq!(web.seen().len(), 4);
    // A guest that follows by itself is judged like any other.
    let found = rig
        .reason(&format!(
            "fetch:GET|http://127.0.0.1:{}/admin",
            other.port()
        ))
        .await;
    assert!(found.starts_with("Error::Denied"), "{found}");
    works(&mut rig, &web).await;
}

#[tokio::test]
async fn nothing_can_be_injected_into_a_request() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, ""));
    let ok = url(&web, "/ok");
    for request in [
        format!("GET|{ok}|h=x=a\r\nhost: evil"),
        format!("GET|{ok}|h=x\r\ny=a"),
        format!("GET|{ok}|h=x=a\nb"),
        format!("GET|{ok}|h=x=a\0"),
        format!("GET|{ok}|h=host=evil.example"),
        format!("GET|{ok}|h=Host=127.0.0.1"),
        format!("POST|{ok}|b=a|h=content-length=0"),
        format!("POST|{ok}|b=a|h=transfer-encoding=chunked"),
        format!("GET|{ok}|h=connection=upgrade"),
        format!("GET|{ok}|h=upgrade=h2c"),
        format!("GET|{ok} HTTP/1.1\r\nhost: evil\r\n\r\n"),
        format!("GET /admin HTTP/1.1\r\nx: |{ok}"),
        format!("GET\r\n|{ok}"),
        format!("|{ok}"),
        format!("GET|{ok}?a=b\r\nx: y"),
    ] {
        let found = rig.reason(&format!("fetch:{request}")).await;
        assert!(found.starts_with("Error::Denied"), "{request:?}: {found}");
    }
    assert_eq!(web.connections(), 0);
    // An absolute URL as a path stays a path, or is refused by the interface itself.
    let authority = format!("api.test:{}", web.port());
    for path in [
        "http://127.0.0.1/admin",
        "*",
        "//127.0.0.1/admin",
        "@127.0.0.1/admin",
    ] {
        rig.run(&format!("wasi:GET|http|{authority}|{path}")).await;
    }
    for seen in web.seen() {
        assert!(seen.target().starts_with('/'), "{}", seen.head);
        assert_eq!(seen.header("host"), Some(&*authority), "{}", seen.head);
    }
    rig.reason(&format!("fetch:GET|{}|h=x-a=b", url(&web, "/echo")))
        .await;
    let last = web.seen().pop().unwrap();
    let expected = format!("GET /echo HTTP/1.1\r\nx-a: b\r\nhost: {authority}");
    assert_eq!(last.head, expected);
}

#[tokio::test]
async fn hostile_responses_are_bounded() {
    let web = Web::start().await;
    let limited = |timeout: &str| {
        let more = format!("timeout = \"{timeout}\"\nresponse_max = \"64KiB\"\n");
        rig(&format!("timeout = \"60s\"\n{}", rule(&web, &more)))
    };
    let (mut patient, mut brief) = (limited("50s"), limited("2s"));
    for (path, ends) in [
        ("/endless", "Error::TooLarge(65536)"),
        ("/size/65537", "Error::TooLarge(65536)"),
        ("/endless-head", "Error::Protocol"),
        ("/trickle", "Error::Timeout"),
        ("/never", "Error::Timeout"),
        ("/garbage", "Error::Protocol"),
        ("/cut", "Error::Protocol"),
    ] {
        let rig = match ends {
            "Error::Timeout" => &mut brief,
            _ => &mut patient,
        };
        let found = rig.reason(&format!("fetch:GET|{}", url(&web, path))).await;
        assert!(found.starts_with(ends), "{path}: {found}");
        let standard = format!("wasi:GET|http|api.test:{}|{path}|len", web.port());
        let found = rig.reason(&standard).await;
        assert!(
            found.contains("broken") || found.contains("ErrorCode"),
            "{path}: {found}"
        );
        works(rig, &web).await;
    }
    let rig = &mut patient;
    let fits = format!("fetch:GET|{}|len", url(&web, "/size/65536"));
    assert_eq!(rig.reason(&fits).await, "200 65536");
    // Nothing is decoded, so nothing can blow up: the guest gets the bytes as they came.
    let gzip = format!("fetch:GET|{}|len", url(&web, "/gzip"));
    assert_eq!(rig.reason(&gzip).await, "200 13");
    // Its header says what they are.
    let header = format!("fetch:GET|{}|show=content-encoding", url(&web, "/gzip"));
    assert_eq!(rig.reason(&header).await, r#"Some("gzip")"#);
    assert_eq!(web.seen()[0].header("accept-encoding"), None);
    eventually("no connection is kept for a hostile response", async || {
        web.open() <= 2
    })
    .await;
}

#[tokio::test]
async fn a_response_that_does_not_fit_into_the_guest_is_a_memory_limit() {
    let web = Web::start().await;
    let large = rule(&web, "response_max = \"256MiB\"\n");
    // Half of the 32 MiB are read first: a busy machine gets the time for it.
    let mut rig = rig(&format!(
        "timeout = \"60s\"\ncpu = \"50s\"\nmemory = \"16MiB\"\n{large}"
    ));
    let fault = rig
        .fault(&format!("fetch:GET|{}|len", url(&web, "/size/33554432")))
        .await;
    assert_eq!(fault.kind.label(), "memory-limit", "{fault}");
    works(&mut rig, &web).await;
}

#[tokio::test]
async fn ten_thousand_requests_of_one_attempt_end_at_the_limit() {
    let web = Web::start().await;
    let mut rig = rig(&format!(
        "timeout = \"60s\"\ncpu = \"50s\"\n{}[limit]\nrequests = 100\n",
        rule(&web, "")
    ));
    let found = rig
        .reason(&format!("flood:10000|GET|{}", url(&web, "/ok")))
        .await;
    assert!(found.contains("(\"200 ok\", 100)"), "{found}");
    assert!(
        found.contains("the attempt has sent 100 requests") && found.contains(", 9900)"),
        "{found}"
    );
    assert_eq!(web.seen().len(), 100);
    // So do requests that are denied, and those that the guest does not wait for.
    let found = rig.reason("flood:10000|GET|http://127.0.0.1/").await;
    assert!(
        found.contains(", 100)") && found.contains(", 9900)"),
        "{found}"
    );
    let leak = format!("wasi-leak:150|http|api.test:{}|/never", web.port());
    assert_eq!(rig.fault(&leak).await.kind.label(), "bad-outcome");
    assert!(web.seen().len() <= 200, "{}", web.seen().len());
    works(&mut rig, &web).await;
}

#[tokio::test]
async fn leaked_handles_end_the_attempt_and_free_everything() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, "in_flight = 4\n"));
    let leak = format!("wasi-leak:5000|http|api.test:{}|/never", web.port());
    let fault = rig.fault(&leak).await;
    assert_eq!(fault.kind.label(), "memory-limit", "{fault}");
    works(&mut rig, &web).await;
    eventually("the requests are cancelled", async || web.open() <= 1).await;
}

#[tokio::test]
async fn a_tcp_grant_reaches_its_server_and_nothing_else() {
    let server = LineServer::start().await;
    let other = LineServer::start().await;
    let (port, closed) = (server.port(), other.port());
    let granted = format!(
        "[[grant.tcp]]\nhost = \"db.test\"\nport = {port}\naddress = \"127.0.0.1\"\n\
         [[grant.tcp]]\nhost = \"localhost\"\nport = {port}\n"
    );
    let mut rig = rig(&granted);
    assert_eq!(
        rig.reason(&format!("tcp:db.test|{port}|hi")).await,
        "echo hi"
    );
    assert_eq!(rig.reason("lookup:db.test").await, "[127.0.0.1]");
    for (action, said) in [
        // Another port, another name, an address that no name was asked for, an internal answer.
        (format!("tcp:db.test|{closed}|hi"), "PermissionDenied"),
        (format!("tcp:127.0.0.1|{port}|hi"), "PermissionDenied"),
        (format!("tcp:localhost|{port}|hi"), ""),
        ("lookup:localhost".to_owned(), "no address"),
        (
            "lookup:secret-of-the-message.evil.example".to_owned(),
            "no address",
        ),
        ("listen".to_owned(), "PermissionDenied"),
        (format!("udp:127.0.0.1|{port}"), "PermissionDenied"),
    ] {
        let found = rig.reason(&action).await;
        assert!(
            !found.starts_with("echo") && found.contains(said),
            "{action}: {found}"
        );
    }
    assert_eq!((server.connections(), other.connections()), (1, 0));
    assert_eq!(
        rig.reason(&format!("tcp:db.test|{port}|again")).await,
        "echo again"
    );
}

#[tokio::test]
async fn an_address_that_one_attempt_learned_is_not_there_for_the_next() {
    let server = LineServer::start().await;
    let port = server.port();
    let mut settings = settings(&format!(
        "[[grant.tcp]]\nhost = \"db.test\"\nport = {port}\naddress = \"127.0.0.1\"\n\
         [[grant.http]]\nhost = \"a.test\"\n\
         [grant.secret]\nneeded = {{ variable = \"NEEDED\", expose = true }}\n"
    ));
    settings.reuse = 100;
    let mut rig = Rig::guest("outbound", &settings);
    assert_eq!(
        rig.reason(&format!("tcp:db.test|{port}|hi")).await,
        "echo hi"
    );
    let report = rig.run(&format!("tcp:127.0.0.1|{port}|hi")).await;
    assert!(!report.fresh, "the instance was reused");
    assert_eq!(
        report.outcome,
        Outcome::Drop(Some("PermissionDenied".to_owned()))
    );
    // An address that a rule names needs no lookup.
    settings.grants = crate::grants::outbound_scene::settings(&format!(
        "[[grant.tcp]]\nhost = \"127.0.0.1\"\nport = {port}\n\
         [[grant.http]]\nhost = \"a.test\"\n\
         [grant.secret]\nneeded = {{ variable = \"NEEDED\", expose = true }}\n"
    ))
    .grants;
    let mut named = Rig::guest("outbound", &settings);
    assert_eq!(
        named.reason(&format!("tcp:127.0.0.1|{port}|hi")).await,
        "echo hi"
    );
}

#[tokio::test]
async fn a_response_has_no_more_headers_than_a_request() {
    let web = Web::start().await;
    let mut rig = rig(&rule(&web, ""));
    let fetch = |n| format!("fetch:GET|{}", url(&web, &format!("/headers/{n}")));
    assert_eq!(rig.reason(&fetch(90)).await, "200 ok");
    let found = rig.reason(&fetch(120)).await;
    assert!(found.starts_with("Error::Protocol"), "{found}");
    works(&mut rig, &web).await;
}

#[tokio::test]
async fn sockets_and_directories_of_an_instance_have_one_cap() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..2_000 {
        std::fs::write(dir.path().join(format!("file-{n}")), "").unwrap();
    }
    let path = dir.path().display();
    let mut rig = rig(&format!(
        "[[grant.tcp]]\nhost = \"127.0.0.1\"\nport = 1\n\
         [[grant.files]]\npath = \"{path}\"\nat = \"/files\"\n"
    ));
    for body in [
        "hold:sockets|65",
        "hold:directories|65",
        "hold:sockets|32+hold:directories|33",
    ] {
        let fault = rig.fault(body).await;
        assert_eq!(fault.kind.label(), "memory-limit", "{body}: {fault}");
        let text = "more than 64 open files, directories and sockets at a time";
        assert!(fault.detail.contains(text), "{body}: {fault}");
    }
    let within = "hold:sockets|32+hold:directories|32+ack";
    assert_eq!(rig.run(within).await.outcome, Outcome::Ack);
    assert_eq!(rig.lines().last().unwrap(), "held 32");
}

mod measured {
    use futures_util::future::join_all;
    use hostler_tests::web::{HostileWeb, Hostility};

    use super::*;
    use crate::grants::outbound_scene::grown;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn directories_that_are_read_take_a_stretch_of_their_entries() {
        const FILES: usize = 10_000;
        let dir = tempfile::tempdir().unwrap();
        let long = "n".repeat(200);
        for n in 0..FILES {
            std::fs::write(dir.path().join(format!("{n}-{long}")), "").unwrap();
        }
        let path = dir.path().display();
        let mut rig = rig(&format!(
            "timeout = \"50s\"\ncpu = \"50s\"\n[[grant.files]]\npath = \"{path}\"\nat = \"/files\"\n"
        ));
        assert_eq!(rig.run("hold:directories|1").await.outcome, Outcome::Ack);
        let (most, report) = grown(rig.run("hold:directories|64+sleep:100")).await;
        println!("{} KiB more for 64 streams of {FILES} entries", most >> 10);
        assert_eq!(report.outcome, Outcome::Ack);
        assert_eq!(rig.lines().last().unwrap(), "held 64");
        // All names together have 2 MiB, in each stream. A stretch has 8 KiB.
        assert!(most < 8 << 20, "{most} bytes more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hostile_server_of_http_2_takes_the_memory_of_a_connection() {
        let (web, dir) = (Web::start().await, tempfile::tempdir().unwrap());
        let ca = dir.path().join("ca.pem");
        for hostility in Hostility::ALL {
            let hostile = HostileWeb::start("hostile.test", &ca, hostility).await;
            let port = hostile.port();
            let toml = format!(
                "timeout = \"50s\"\n[[grant.http]]\nhost = \"hostile.test\"\nport = {port}\n\
                 address = \"127.0.0.1\"\nca = \"{}\"\ntimeout = \"1s\"\n{}",
                ca.display(),
                rule(&web, "")
            );
            let mut first = rig(&toml);
            works(&mut first, &web).await;
            // On one connection. Nothing reads the bodies of the second kind.
            let bodies = [
                format!("fetch:GET|https://hostile.test:{port}/"),
                format!("hold:unread|15|https|hostile.test:{port}|/+sleep:500"),
            ];
            for body in bodies {
                let all = (0..4).map(|_| {
                    let (mut rig, body) = (Rig::of(first.sandbox.clone()), body.clone());
                    async move { rig.run(&body).await.outcome }
                });
                let (most, ends) = grown(join_all(all)).await;
                println!(
                    "{hostility:?}, {body}: {} KiB more, {} KiB sent, {ends:?}",
                    most >> 10,
                    hostile.sent() >> 10,
                );
                assert!(most < 4 << 20, "{hostility:?}: {most} bytes more");
            }
            works(&mut first, &web).await;
        }
    }
}
