//! The orders example for the SQS trigger of Spin.

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

struct Orders;

impl Guest for Orders {
    fn handle_queue_message(message: Message) -> Result<MessageAction, Error> {
        let body = message.body.unwrap_or_default();
        orders::done(body.as_bytes()).map_err(Error::Other)?;
        Ok(MessageAction::Delete)
    }
}

export!(Orders);
