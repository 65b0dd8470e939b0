//! Handlers that return while tasks of theirs are not finished.

use std::future::pending;
use std::time::Duration;

use hostler_handler::{Error, handler, spawn};
use wstd::http::{Body, Client, Request};
use wstd::task::sleep;

#[handler]
async fn handle(body: Vec<u8>) -> Result<(), Error> {
    match &*body {
        b"works" => {
            for n in 0..3 {
                spawn(async move {
                    sleep(Duration::from_millis(n * 20).into()).await;
                    println!("charged {n}");
                });
            }
        }
        b"request" => spawn(async {
            let request = Request::post("https://payments.example.com/charges").body(Body::empty());
            if let Ok(request) = request {
                let status = Client::new().send(request).await.map(|answer| answer.status().as_u16());
                println!("charged {status:?}");
            }
        }),
        b"detached" => wstd::runtime::spawn(async {
            sleep(Duration::from_millis(20).into()).await;
            println!("charged");
        })
        .detach(),
        b"stuck" => spawn(pending()),
        b"panic" => spawn(async { panic!("a task hit a bug") }),
        b"blocked" => pending().await,
        b"error" => {
            spawn(pending());
            Err("sold out")?;
        }
        _ => {}
    }
    Ok(())
}
