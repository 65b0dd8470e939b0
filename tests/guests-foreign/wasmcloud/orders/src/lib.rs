//! Counts the orders of each customer in `wasi:keyvalue`, and publishes an invoice for each. A message is
//! `customer amount`; `wasi:config` says where invoices go.

wit_bindgen::generate!({
    inline: "
        package wasmcloud:messaging@0.2.0;

        interface types {
            record broker-message {
                subject: string,
                body: list<u8>,
                reply-to: option<string>,
            }
        }

        interface handler {
            use types.{broker-message};
            handle-message: func(msg: broker-message) -> result<_, string>;
        }

        world component {
            export handler;
        }
    ",
    with: {
        "wasmcloud:messaging/types@0.2.0": wasmcloud_component::wasmcloud::messaging::types,
    },
});

use exports::wasmcloud::messaging::handler::Guest;
use wasmcloud_component::info;
use wasmcloud_component::wasi::{config, keyvalue};
use wasmcloud_component::wasmcloud::messaging::{consumer, types::BrokerMessage};

struct Orders;

impl Guest for Orders {
    fn handle_message(msg: BrokerMessage) -> Result<(), String> {
        let text = String::from_utf8(msg.body).map_err(|error| error.to_string())?;
        let (customer, amount) = text.split_once(' ').ok_or("not an order")?;
        let to = config::store::get("invoices").map_err(|error| format!("{error:?}"))?;
        let bucket = keyvalue::store::open("default").map_err(|error| error.to_string())?;
        let before = bucket.get(customer).map_err(|error| error.to_string())?;
        let before = before.and_then(|count| String::from_utf8(count).ok()?.parse::<u64>().ok());
        let count = before.unwrap_or(0) + 1;
        let value = count.to_string();
        bucket
            .set(customer, value.as_bytes())
            .map_err(|error| error.to_string())?;
        info!("order {count} of {customer}");
        consumer::publish(&BrokerMessage {
            subject: to.ok_or("no value for invoices")?,
            body: format!("{customer} #{count}: {amount}").into_bytes(),
            reply_to: None,
        })
    }
}

export!(Orders);
