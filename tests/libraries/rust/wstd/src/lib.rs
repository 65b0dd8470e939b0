use std::time::Duration;

use hostler_handler::{Error, config, handler, spawn};
use wstd::http::{Body, Client, Request};
use wstd::task::sleep;

#[handler]
async fn handle(_: Vec<u8>) -> Result<(), Error> {
    let api = config("api").ok_or("no `api`")?;
    let beside = format!("{api}/get?beside");
    spawn(async move {
        sleep(Duration::from_millis(20).into()).await;
        println!("beside: {:?}", get(&beside).await.map_err(|error| error.to_string()));
    });
    match get(&format!("{api}/get")).await? {
        200 => Ok(()),
        status => Err(format!("got {status}"))?,
    }
}

async fn get(url: &str) -> Result<u16, Error> {
    let request = Request::get(url).body(Body::empty())?;
    Ok(Client::new().send(request).await?.status().as_u16())
}
