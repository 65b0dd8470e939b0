//! Signs a customer up: creates the account, waits until the trial ends, sends a mail, and publishes. hostler records each
//! step that is done, so no retry repeats it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hostler_handler::{Error, handler, hold, publish, recall, remember};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use waki::Client;

#[derive(Deserialize)]
struct SignUp {
    email: String,
    trial_seconds: u64,
}

#[derive(Deserialize, Serialize)]
struct Account {
    id: Value,
    trial_ends: u64,
}

#[handler]
fn sign_up(SignUp { email, trial_seconds }: SignUp) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let account = match recall::<Account>("account")? {
        Some(account) => account,
        None => {
            let created = post("https://accounts.example.com/accounts", &json!({ "email": email }))?;
            let account = Account { id: created["id"].clone(), trial_ends: now + trial_seconds };
            remember("account", &account)?;
            account
        }
    };
    if now < account.trial_ends {
        return Err(hold(Duration::from_secs(account.trial_ends - now)));
    }
    post("https://mail.example.com/messages", &json!({ "to": email, "template": "trial-ended" }))?;
    publish("accounts", &json!({ "account": account.id, "trial": "ended" }))
}

fn post(url: &str, body: &Value) -> Result<Value, Error> {
    let response = Client::new().post(url).json(body).send()?;
    match response.status_code() {
        200..300 => Ok(response.json()?),
        status => Err(format!("{url} answered {status}"))?,
    }
}
