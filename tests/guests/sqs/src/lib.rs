//! A handler for the SQS trigger of Spin. Beside what all guests for other hosts do: `echo` prints the message,
//! `leave` leaves it in the queue.

use std::cell::Cell;

wit_bindgen::generate!({
    inline: "
        package fermyon:spin-sqs@2.0.0;

        interface sqs-types {
            variant message-attribute-value { str(string), binary(list<u8>) }
            record message-attribute {
                name: string,
                data-type: option<string>,
                value: message-attribute-value,
            }
            record message {
                id: option<string>,
                message-attributes: list<message-attribute>,
                body: option<string>,
            }
            variant error { other(string) }
            enum message-action { delete, leave }
        }

        world spin-sqs {
            use sqs-types.{message, message-action, error};
            export handle-queue-message: func(message: message) -> result<message-action, error>;
        }
    ",
});

struct Sqs;

impl Guest for Sqs {
    fn handle_queue_message(message: Message) -> Result<MessageAction, Error> {
        let leaves = Cell::new(false);
        let extra = |name: &str, _: &str| {
            match name {
                "echo" => println!("{message:?}"),
                "leave" => leaves.set(true),
                _ => return false,
            }
            true
        };
        let body = message.body.as_deref().expect("a message has a body");
        foreign::handle(body.as_bytes(), &extra).map_err(Error::Other)?;
        Ok(match leaves.get() {
            true => MessageAction::Leave,
            false => MessageAction::Delete,
        })
    }
}

export!(Sqs);
