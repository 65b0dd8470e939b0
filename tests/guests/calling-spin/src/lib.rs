//! A handler for the Redis trigger of Spin that makes requests: `call:...` of the crate `standard-http`.

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
    generate_all,
});

use exports::fermyon::spin::inbound_redis::{Error, Guest, Payload};

struct Calling;

impl Guest for Calling {
    fn handle_message(message: Payload) -> Result<(), Error> {
        foreign::handle(&message, &standard_http::act).map_err(|_| Error::Error)
    }
}

export!(Calling);
