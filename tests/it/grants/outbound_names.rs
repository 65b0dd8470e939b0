//! Lookups of names that a DNS server never answers, and descriptors: both are bounded, and the host goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hostler_tests::dns::Dns;
use hostler_tests::guests::guest;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{eventually, eventually_or};

use crate::runtime::e2e_scene::Scene;

/// A number in `/proc/PID/status`.
pub(crate) fn status(host: &Host, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap()
}

/// What the guest has written that begins so.
fn said(host: &Host, begin: &str) -> Vec<String> {
    let log = host.log();
    let lines = log.iter().filter_map(|line| line.text("line"));
    lines
        .filter(|l| l.starts_with(begin))
        .map(str::to_owned)
        .collect()
}

/// Wait until the guest has written exactly this: the log may be behind Redis.
async fn says(host: &Host, begin: &str, expected: &[&str]) {
    let what = || format!("{expected:?}: {:?}", said(host, begin));
    eventually_or(what, async || said(host, begin) == expected).await;
}

/// A host with a rule for many silent names, one for a single silent name, and one for names with an answer.
async fn host(scene: &Scene, dns: &Dns, more: &str) -> Host {
    let config = scene.server.dir().join("orders.toml");
    let toml = "[[grant.tcp]]\nhost = \"*.silent.test\"\nport = 1\n\
                [[grant.tcp]]\nhost = \"n0.one-silent.test\"\nport = 1\n\
                [[grant.tcp]]\nhost = \"*.db.test\"\nport = 1\nnetworks = [\"127.0.0.0/8\"]\n\
                [[grant.http]]\nscheme = \"http\"\nhost = \"*.http-silent.test\"\n\
                [grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";
    fs::write(&config, format!("{more}{toml}")).unwrap();
    let options = scene
        .host()
        .cap(1)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .flag("timeout", "60s")
        .variable("NEEDED", "needed")
        .admin();
    dns.asked_by(options).ready().await
}

#[tokio::test]
async fn silent_names_take_bounded_threads_and_memory_and_other_names_are_found() {
    let mut scene = Scene::new().await;
    let dns = Dns::new();
    let host = host(&scene, &dns, "").await;
    scene.publish_all("hold:lookups|1|db.test|20000", 16).await;
    scene.emptied().await;
    says(&host, "held", &["held 1"; 16]).await;
    let threads = status(&host, "Threads:");
    // Each attempt ends long before the resolver gives up its first question.
    for n in 0..4 {
        let many = format!("hold:lookups|128|{n}.silent.test|300");
        scene.publish(&many).await;
        scene.publish("hold:lookups|128|one-silent.test|300").await;
        for m in 0..20 {
            let fetch = format!("send:GET|http://n{m}.{n}.http-silent.test/|t=100");
            scene.publish(&fetch).await;
        }
    }
    scene.emptied().await;
    // The seats of two rules with many names, and of one with one name.
    let most = 8 + 8 + 1;
    let found = status(&host, "Threads:").saturating_sub(threads);
    let asked = dns.asked();
    println!("{found} threads more, {} names asked for", asked.len());
    // The runtime may start a few threads of its own meanwhile.
    assert!(found <= most + 4, "{found} threads more");
    let silent = asked.iter().filter(|name| name.ends_with("silent.test"));
    assert!(silent.count() as u64 <= most, "{asked:?}");

    // Meanwhile another rule finds its names.
    scene.publish("hold:lookups|8|db.test|20000").await;
    scene.emptied().await;
    eventually("the names are found", async || {
        said(&host, "held").pop().as_deref() == Some("held 8")
    })
    .await;
    assert!(host.get("/live").0 == 200);
    host.drained().await;
}

#[tokio::test]
async fn an_attempt_looks_up_as_many_names_as_it_may_send_requests() {
    let mut scene = Scene::new().await;
    let dns = Dns::new();
    let host = host(&scene, &dns, "limit.requests = 5\n").await;
    scene.publish("hold:lookups|7|db.test|20000").await;
    scene.emptied().await;
    says(&host, "held", &["held 5"]).await;
    assert_eq!(dns.asked().len(), 5, "{:?}", dns.asked());
    host.drained().await;
}

/// A host whose process may open `most` descriptors.
fn limited(scene: &Scene, most: u32, concurrency: u32) -> HostOptions {
    let dir = scene.server.dir();
    let (program, config) = (dir.join("limited"), dir.join("limited.toml"));
    let binary = hostler_tests::host::binary();
    let script = format!(
        "#!/bin/sh\nulimit -n {most}\nexec {} \"$@\"\n",
        binary.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let toml = "timeout = \"20s\"\n[[grant.tcp]]\nhost = \"127.0.0.1\"\nport = 1\n\
                [[grant.http]]\nhost = \"a.test\"\n\
                [grant.secret]\nneeded = { variable = \"NEEDED\", expose = true }\n";
    fs::write(&config, toml).unwrap();
    scene
        .host()
        .cap(1)
        .binary(&program)
        .flag("handler", &guest("outbound").display().to_string())
        .flag("config", &config.display().to_string())
        .flag("concurrency", &concurrency.to_string())
        .variable("NEEDED", "needed")
        .admin()
}

#[tokio::test]
async fn a_host_is_alive_while_its_handlers_hold_all_descriptors_that_they_may() {
    let mut scene = Scene::new().await;
    // 256 of its own, 6 attempts, and the connections of a rule.
    let host = limited(&scene, 256 + 6 * 64 + 32, 4).ready().await;
    scene.publish_all("hold:sockets|64+sleep:10000", 4).await;
    eventually("all are held", async || {
        said(&host, "held") == vec!["held 64"; 4]
    })
    .await;
    for path in ["/live", "/metrics"] {
        assert_eq!(host.get(path).0, 200, "{path}");
    }
    let open = fs::read_dir(format!("/proc/{}/fd", host.pid()))
        .unwrap()
        .count();
    println!("{open} descriptors, of them {} of handlers", 4 * 64);
    assert!(open > 4 * 64 && open < 4 * 64 + 256, "{open}");
    scene.emptied().await;
    host.drained().await;
}

#[tokio::test]
async fn a_host_that_may_open_too_few_descriptors_does_not_start_and_names_the_numbers() {
    let scene = Scene::new().await;
    let ended = limited(&scene, 600, 4).end().await;
    let text = ended.stderr();
    assert_ne!(ended.code(), Some(0));
    for part in [
        "may open 600",
        "may need 672",
        "4 attempts",
        "`concurrency`",
        "LimitNOFILE",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

mod measured {
    use super::*;

    #[tokio::test]
    async fn lookups_that_nobody_waits_for_take_no_memory() {
        let mut scene = Scene::new().await;
        let dns = Dns::new();
        let host = host(&scene, &dns, "").await;
        scene.publish_all("hold:lookups|1|db.test|20000", 16).await;
        scene.emptied().await;
        let before = status(&host, "VmRSS:");
        for n in 0..4 {
            let many = format!("hold:lookups|128|{n}.silent.test|300");
            scene.publish(&many).await;
        }
        scene.emptied().await;
        let grown = status(&host, "VmRSS:").saturating_sub(before);
        println!("{grown} KiB more after 512 lookups that nobody waits for");
        assert!(grown < 32 << 10, "{grown} KiB more");
        host.drained().await;
    }
}
