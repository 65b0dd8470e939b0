//! A handler of messages for wasmCloud that makes requests: `call:...` of the crate `standard-http`.

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
    generate_all,
});

use exports::wasmcloud::messaging::handler::{BrokerMessage, Guest};

struct Calling;

impl Guest for Calling {
    fn handle_message(message: BrokerMessage) -> Result<(), String> {
        foreign::handle(&message.body, &standard_http::act)
    }
}

export!(Calling);
