//! A handler for the Redis trigger of Spin. Beside what all guests for other hosts do: `var:NAME`, `get:KEY`,
//! `set:KEY=VALUE`, `delete:KEY`, `has:KEY`, `keys`, `open:LABEL`; each prints its result.

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
            import fermyon:spin/variables@2.0.0;
            import fermyon:spin/key-value@2.0.0;
            export inbound-redis;
        }

        package fermyon:spin@2.0.0 {
            interface variables {
                variant error {
                    invalid-name(string),
                    undefined(string),
                    provider(string),
                    other(string),
                }
                get: func(name: string) -> result<string, error>;
            }

            interface key-value {
                resource store {
                    open: static func(label: string) -> result<store, error>;
                    get: func(key: string) -> result<option<list<u8>>, error>;
                    set: func(key: string, value: list<u8>) -> result<_, error>;
                    delete: func(key: string) -> result<_, error>;
                    exists: func(key: string) -> result<bool, error>;
                    get-keys: func() -> result<list<string>, error>;
                }
                variant error {
                    store-table-full,
                    no-such-store,
                    access-denied,
                    other(string),
                }
            }
        }
    ",
    generate_all,
});

use exports::fermyon::spin::inbound_redis::{Error, Guest, Payload};
use fermyon::spin2_0_0::key_value::Store;
use fermyon::spin2_0_0::variables;

struct Spin;

fn extra(name: &str, argument: &str) -> bool {
    let store = || Store::open("default").expect("there is a store");
    match name {
        "var" => println!("{:?}", variables::get(argument)),
        "get" => {
            let value = store().get(argument);
            println!(
                "{:?}",
                value.map(|v| v.map(|v| String::from_utf8_lossy(&v).into_owned()))
            );
        }
        "set" => {
            let (key, value) = argument.split_once('=').expect("a key and a value");
            println!("{:?}", store().set(key, value.as_bytes()));
        }
        "delete" => println!("{:?}", store().delete(argument)),
        "has" => println!("{:?}", store().exists(argument)),
        "keys" => println!("{:?}", store().get_keys()),
        "open" => println!("{:?}", Store::open(argument).map(|_| ())),
        _ => return false,
    }
    true
}

impl Guest for Spin {
    fn handle_message(message: Payload) -> Result<(), Error> {
        // As the SDK does it.
        foreign::handle(&message, &extra).map_err(|error| {
            eprintln!("{error}");
            Error::Error
        })
    }
}

export!(Spin);
