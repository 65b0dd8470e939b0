use hostler_handler::{Error, config, handler};
use serde_json::{Value, json};
use waki::Client;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let url = format!("{}/post", config("api").ok_or("no `api`")?);
    let response = Client::new().post(&url).json(&json!({ "cents": 7 })).send()?;
    let answer: Value = response.json()?;
    (answer["ok"] == true).then_some(()).ok_or_else(|| format!("got {answer}").into())
}
