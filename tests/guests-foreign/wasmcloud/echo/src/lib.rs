//! Sends the body of each message to its reply-to, as the messaging example of wasmCloud does.

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
use wasmcloud_component::wasmcloud::messaging::{consumer, types::BrokerMessage};
use wasmcloud_component::{info, warn};

struct Echo;

impl Guest for Echo {
    fn handle_message(msg: BrokerMessage) -> Result<(), String> {
        info!("message on {}", msg.subject);
        let Some(reply_to) = msg.reply_to else {
            warn!("no reply-to: nothing is sent");
            return Ok(());
        };
        consumer::publish(&BrokerMessage {
            subject: reply_to,
            body: msg.body,
            reply_to: None,
        })
    }
}

export!(Echo);
