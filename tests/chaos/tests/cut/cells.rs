//! Promises hold whatever fails.

use std::path::PathBuf;

use hostler_chaos::plan::Cell;
use hostler_chaos::run::{Programs, keep, run};

/// Run the cell of that name with fewer messages; the seed is drawn, and said if it fails.
async fn holds(cell: &str) {
    let seed = fastrand::u64(..1 << 48);
    let mut cell = match cell {
        "random" => Cell::random(seed, false, true),
        name => Cell::named(name).unwrap(),
    };
    cell.load.messages = 800;
    cell.load.rate = 300;
    let outcome = run(&cell.plan(seed), &Programs::default()).await.unwrap();
    let counts = outcome.judgement.counts.clone();
    let violations = outcome.judgement.violations.clone();
    println!("{} seed {seed}: {counts:?}", cell.name);
    assert!(counts.ok > 0 && counts.starts > 0, "nothing ran");
    if !violations.is_empty() {
        let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
        keep(outcome, &to).unwrap();
        panic!(
            "chaos run --cell {} --seed {seed} --messages 800 --rate 300; kept in {}\n{:#?}",
            cell.name,
            to.display(),
            &violations[..violations.len().min(20)]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_hold_while_hosts_are_killed() {
    holds("host-crash").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_of_a_list_hold_while_replies_are_cut() {
    holds("list-cut-reply").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_hold_while_redis_is_killed() {
    holds("redis-crash").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_hold_whatever_fails_together() {
    holds("random").await;
}
