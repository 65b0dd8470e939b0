//! The orders example for the messages of wasmCloud.

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
});

use exports::wasmcloud::messaging::handler::{BrokerMessage, Guest};

struct Orders;

impl Guest for Orders {
    fn handle_message(message: BrokerMessage) -> Result<(), String> {
        orders::done(&message.body)
    }
}

export!(Orders);
