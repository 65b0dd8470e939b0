//! A component without the SDK, whose tasks are not finished when the handler returns.

use std::time::Duration;

use tokio::task::LocalSet;

wit_bindgen::generate!({ path: "../../../../wit", world: "handler" });

use exports::hostler::handler::message_handler::Guest;
use hostler::handler::types::{Message, Outcome};

struct Handler;

impl Guest for Handler {
    fn handle(message: Message) -> Outcome {
        match &*message.body {
            b"wstd" => wstd::runtime::block_on(async {
                wstd::runtime::spawn(async {
                    wstd::task::sleep(Duration::from_millis(20).into()).await;
                    println!("charged");
                })
                .detach();
            }),
            // A runtime of tokio drops the tasks that are left; a `LocalSet` runs them.
            b"tokio" => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let tasks = LocalSet::new();
                tasks.spawn_local(async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    println!("charged");
                });
                runtime.block_on(tasks);
            }
            _ => return Outcome::Drop(None),
        }
        Outcome::Ack
    }
}

export!(Handler);
