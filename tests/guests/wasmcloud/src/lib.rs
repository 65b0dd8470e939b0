//! A handler of messages for wasmCloud. Beside what all guests for other hosts do: `echo` prints the message,
//! `publish:SUBJECT:BODY` publishes, `ask:SUBJECT:TO` publishes with a reply-to, `answer:BODY` publishes to
//! the reply-to of the message, `config:NAME` reads a value; each prints its result.

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

        interface consumer {
            use types.{broker-message};
            request: func(subject: string, body: list<u8>, timeout-ms: u32) -> result<broker-message, string>;
            publish: func(msg: broker-message) -> result<_, string>;
        }

        world component {
            import consumer;
            import wasi:config/store@0.2.0-draft;
            export handler;
        }

        package wasi:config@0.2.0-draft {
            interface store {
                variant error { upstream(string), io(string) }
                get: func(key: string) -> result<option<string>, error>;
                get-all: func() -> result<list<tuple<string, string>>, error>;
            }
        }
    ",
    generate_all,
});

use exports::wasmcloud::messaging::handler::{BrokerMessage, Guest};
use wasi::config::store;
use wasmcloud::messaging::consumer;

struct Wasmcloud;

fn publish(subject: &str, body: &str, reply_to: Option<&str>) {
    let message = BrokerMessage {
        subject: subject.to_owned(),
        body: body.as_bytes().to_vec(),
        reply_to: reply_to.map(str::to_owned),
    };
    println!("{:?}", consumer::publish(&message));
}

impl Guest for Wasmcloud {
    fn handle_message(message: BrokerMessage) -> Result<(), String> {
        let extra = |name: &str, argument: &str| {
            let (first, rest) = argument.split_once(':').unwrap_or((argument, ""));
            match name {
                "echo" => println!("{} {:?}", message.subject, message.reply_to),
                "publish" => publish(first, rest, None),
                "ask" => publish(first, "", Some(rest)),
                "answer" => {
                    let to = message.reply_to.as_deref().unwrap_or("nowhere");
                    publish(to, argument, None);
                }
                "config" => println!("{:?}", store::get(argument)),
                _ => return false,
            }
            true
        };
        foreign::handle(&message.body, &extra)
    }
}

export!(Wasmcloud);
