//! Batch handlers, called directly.

use std::time::Duration;

use hostler::delivery::hold::HoldRoom;
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{Fault, FaultKind, Outcome};
use hostler::delivery::trace::Traced;
use hostler::sandbox::{BatchReport, Call, Limits, LogSink, Settings, World};
use hostler_tests::rig::{Rig, message};

fn rig(settings: &Settings) -> Rig {
    Rig::guest("batch", settings)
}

async fn batch(rig: &mut Rig, bodies: &[&str]) -> BatchReport {
    let messages: Vec<Message> = bodies
        .iter()
        .enumerate()
        .map(|(i, body)| Message {
            id: format!("1-{i}").into(),
            ..message(body)
        })
        .collect();
    let logs = LogSink::Capture(rig.capture.clone());
    let calls: Vec<Call<'_>> = messages
        .iter()
        .zip(1..)
        .map(|(message, attempt)| Call {
            message,
            attempt,
            max_attempts: 5,
            cancelled: &rig.cancelled,
            logs: &logs,
            trace: Traced::default(),
            began: std::time::Instant::now(),
            journal: None,
            room: HoldRoom::default(),
        })
        .collect();
    let call = rig.sandbox.call_batch(&mut rig.slot, &calls);
    tokio::time::timeout(Duration::from_secs(60), call)
        .await
        .expect("the call ends")
}

async fn fault(rig: &mut Rig, bodies: &[&str]) -> Fault {
    batch(rig, bodies).await.answer.expect_err("a fault")
}

fn dropped(reason: &str) -> Outcome {
    Outcome::Drop(Some(reason.to_owned()))
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_own_outcome() {
    let mut rig = rig(&Settings::default());
    let description = rig.sandbox.describe();
    assert_eq!(description.world, World::Batch);
    assert_eq!(description.interface, "hostler:handler/batch-handler@1.2.0");
    // Message `n` has attempt `n`, and takes the step `n` of its script.
    let bodies = ["ack", "ack,nack", "drop:no", "ack,ack,ack,nack:7", "size"];
    let report = batch(&mut rig, &bodies).await;
    let expected = [
        Outcome::Ack,
        Outcome::NackRequeue(None),
        dropped("no"),
        Outcome::NackRequeue(Some(Duration::from_millis(7))),
        dropped("5"),
    ];
    assert!(report.fresh());
    assert_eq!(report.answer.unwrap(), expected);
    // A delay that no host keeps is the fault of its message alone.
    let answer = batch(&mut rig, &["ack", "nack,nack:2592000001"])
        .await
        .answer
        .unwrap();
    assert_eq!(answer[0], Outcome::Ack);
    assert!(matches!(&answer[1], Outcome::Fault(fault) if fault.kind == FaultKind::BadOutcome));
    let echo = batch(&mut rig, &["ack", "echo"]).await.answer.unwrap();
    let Outcome::Drop(Some(echo)) = &echo[1] else {
        panic!("{echo:?}");
    };
    let begin = "id=1-1 queue=orders attempt=2 max=5 ";
    assert!(echo.starts_with(begin), "{echo}");
}

#[tokio::test]
async fn a_large_batch_is_one_call() {
    let mut rig = rig(&Settings::default());
    let bodies = vec!["ack"; 1000];
    let answer = batch(&mut rig, &bodies).await.answer.unwrap();
    assert_eq!(answer, vec![Outcome::Ack; 1000]);
    assert!(rig.lines().contains(&"batch 1000".to_owned()));
}

#[tokio::test]
async fn one_message_is_a_batch_of_one() {
    let mut rig = rig(&Settings::default());
    assert_eq!(rig.reason("size").await, "1");
    assert_eq!(rig.run("nack").await.outcome, Outcome::NackRequeue(None));
    for (body, count) in [("miss", 0), ("more", 2)] {
        let fault = rig.fault(body).await;
        assert_eq!(fault.kind, FaultKind::BadOutcome);
        assert_eq!(fault.detail, format!("{count} outcomes for 1 messages"));
    }
    // A message handler gets only the first message.
    let mut single = Rig::scripted(&Settings::default());
    assert_eq!(single.sandbox.describe().world, World::Message);
    let answer = batch(&mut single, &["drop:first", "drop:second"]).await;
    assert_eq!(answer.answer.unwrap(), [dropped("first")]);
}

mod measured {
    use super::*;

    #[tokio::test]
    async fn a_fault_fails_the_whole_batch() {
        let mut rig = rig(&Settings {
            reuse: 100,
            limits: Limits {
                wall: Duration::from_secs(2),
                cpu: Duration::from_millis(400),
                memory: 8 << 20,
                ..Limits::default()
            },
            ..Settings::default()
        });
        let faults = [
            ("trap", FaultKind::Trap),
            ("exit:1", FaultKind::GuestExit),
            ("loop", FaultKind::CpuTimeout),
            ("sleep:60000", FaultKind::WallTimeout),
            ("grow:9", FaultKind::MemoryLimit),
            ("reply:2000000", FaultKind::OutputLimit),
        ];
        for (body, kind) in faults {
            let fault = fault(&mut rig, &["ack", body, "ack"]).await;
            assert_eq!(fault.kind, kind, "{body}: {}", fault.detail);
            let after = batch(&mut rig, &["count"]).await;
            assert_eq!(after.answer.unwrap(), [dropped("1")], "a new instance");
        }
        let count = batch(&mut rig, &["ack", "count"]).await;
        assert_eq!(count.answer.unwrap()[1], dropped("3"));
    }
}

#[tokio::test]
async fn the_caller_checks_the_number_of_outcomes() {
    let mut rig = rig(&Settings::default());
    let missing = batch(&mut rig, &["ack", "miss", "ack"]).await;
    assert_eq!(missing.answer.unwrap().len(), 2);
    let more = batch(&mut rig, &["ack", "more"]).await;
    assert_eq!(more.answer.unwrap().len(), 3);
}

#[tokio::test]
async fn each_message_of_a_batch_counts_against_the_reuse_limit() {
    let mut rig = rig(&Settings {
        reuse: 4,
        ..Settings::default()
    });
    let mut fresh = Vec::new();
    for _ in 0..5 {
        fresh.push(batch(&mut rig, &["ack", "ack"]).await.fresh());
    }
    assert_eq!(fresh, [true, false, true, false, true]);
}

#[tokio::test]
async fn in_a_batch_traces_are_only_in_the_headers_of_their_messages() {
    let mut rig = rig(&Settings::default());
    let parent = ("traceparent".into(), "00-4bf9-00f0-01".into());
    let headers = Headers::new(vec![parent]);
    let traced = |body| Message {
        headers: headers.clone(),
        ..message(body)
    };
    let alone = rig.call(&traced("trace"), 1).await.outcome;
    assert_eq!(alone, dropped("(Some(\"00-4bf9-00f0-01\"), None)"));
    let (first, second) = (traced("trace"), traced("echo"));
    let logs = LogSink::default();
    let call = |message| Call {
        message,
        attempt: 1,
        max_attempts: 0,
        cancelled: &rig.cancelled,
        logs: &logs,
        trace: Traced::default(),
        began: std::time::Instant::now(),
        journal: None,
        room: HoldRoom::default(),
    };
    let calls = [call(&first), call(&second)];
    let report = rig.sandbox.call_batch(&mut rig.slot, &calls).await;
    let answer = report.answer.unwrap();
    assert_eq!(answer[0], dropped("(None, None)"));
    let Outcome::Drop(Some(echo)) = &answer[1] else {
        panic!("{answer:?}");
    };
    let end = "headers=[traceparent=00-4bf9-00f0-01]";
    assert!(echo.ends_with(end), "{echo}");
}
