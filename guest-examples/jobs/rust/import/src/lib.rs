//! Reads customers from a CSV file: one message for each, and a count.

use hostler_handler::{Drop, Error, Message, handler, key_value, publish};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Customer {
    name: String,
    mail: String,
}

#[handler]
fn load(file: Vec<u8>, message: &Message) -> Result<(), Error> {
    let mut count = 0;
    for (row, customer) in csv::Reader::from_reader(&*file).deserialize().enumerate() {
        let customer: Customer = customer.map_err(|error| Drop(error.to_string()))?;
        if !customer.mail.contains('@') {
            Err(Drop(format!("row {}: `{}` is no address", row + 2, customer.mail)))?;
        }
        publish("customers", &customer)?;
        count += 1;
    }
    let name = message.headers.get("file").map_or("", String::as_str);
    key_value::set(&format!("rows:{name}"), count.to_string())
}
