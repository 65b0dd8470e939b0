//! The orders example for the Redis trigger of Spin.

wit_bindgen::generate!({
    inline: "
        package fermyon:spin;

        interface redis-types {
            enum error { success, error }
            type payload = list<u8>;
        }

        interface inbound-redis {
            use redis-types.{payload, error};
            handle-message: func(message: payload) -> result<_, error>;
        }

        world redis {
            export inbound-redis;
        }
    ",
});

use exports::fermyon::spin::inbound_redis::{Error, Guest, Payload};

struct Orders;

impl Guest for Orders {
    fn handle_message(message: Payload) -> Result<(), Error> {
        orders::done(&message).map_err(|_| Error::Error)
    }
}

export!(Orders);
