//! Lookups of names that a DNS server never answers: they are bounded, they end with their threads, and other names
//! are still found.

use std::fs;

use hostler_tests::dns::Dns;
use hostler_tests::guests::guest;
use hostler_tests::host::Host;

use crate::e2e_scene::Scene;

/// A number in `/proc/PID/status`.
fn status(host: &Host, name: &str) -> u64 {
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
        .variable("NEEDED", "needed")
        .admin();
    dns.asked_by(options).ready().await
}

#[tokio::test]
async fn silent_names_take_bounded_threads_and_memory_and_other_names_are_found() {
    let mut scene = Scene::new().await;
    let dns = Dns::new();
    let host = host(&scene, &dns, "").await;
    scene.publish_all("hold:lookups|1|db.test|2000", 16).await;
    scene.emptied().await;
    assert_eq!(said(&host, "held"), vec!["held 1"; 16]);
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
    assert!(found <= most, "{found} threads more");
    let silent = asked.iter().filter(|name| name.ends_with("silent.test"));
    assert!(silent.count() as u64 <= most, "{asked:?}");

    // Meanwhile another rule finds its names.
    scene.publish("hold:lookups|8|db.test|2000").await;
    scene.emptied().await;
    assert_eq!(said(&host, "held").pop().as_deref(), Some("held 8"));
    assert!(host.get("/live").0 == 200);
    host.drained().await;
}

#[tokio::test]
async fn an_attempt_looks_up_as_many_names_as_it_may_send_requests() {
    let mut scene = Scene::new().await;
    let dns = Dns::new();
    let host = host(&scene, &dns, "limit.requests = 5\n").await;
    scene.publish("hold:lookups|7|db.test|2000").await;
    scene.emptied().await;
    assert_eq!(said(&host, "held"), ["held 5"]);
    assert_eq!(dns.asked().len(), 5, "{:?}", dns.asked());
    host.drained().await;
}

mod measured {
    use super::*;

    #[tokio::test]
    async fn lookups_that_nobody_waits_for_take_no_memory() {
        let mut scene = Scene::new().await;
        let dns = Dns::new();
        let host = host(&scene, &dns, "").await;
        scene.publish_all("hold:lookups|1|db.test|2000", 16).await;
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
