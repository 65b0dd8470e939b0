//! `fermyon:spin-sqs@2.0.0`: the SQS trigger of Spin. Its function belongs to the world, not to an interface.

use wasmtime::Store;
use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc};

/// `handle-queue-message`.
pub(in crate::sandbox) type HandleQueueMessage =
    TypedFunc<(&'static Message<'static>,), (Result<Action, Error>,)>;

/// `sqs-types.message`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(in crate::sandbox) struct Message<'a> {
    id: Option<&'a str>,
    #[component(name = "message-attributes")]
    attributes: &'a [Attribute<'a>],
    body: Option<&'a str>,
}

/// `sqs-types.message-attribute`: a header.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(in crate::sandbox) struct Attribute<'a> {
    name: &'a str,
    /// Spin leaves it out, too.
    #[component(name = "data-type")]
    data_type: Option<&'a str>,
    value: Value<'a>,
}

/// `sqs-types.message-attribute-value`.
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(in crate::sandbox) enum Value<'a> {
    #[component(name = "str")]
    Text(&'a str),
    #[component(name = "binary")]
    #[expect(dead_code, reason = "the WIT has it; headers of a guest are text")]
    Binary(&'a [u8]),
}

/// `sqs-types.message-action`.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the derived code makes them")]
pub(in crate::sandbox) enum Action {
    #[component(name = "delete")]
    Delete,
    #[component(name = "leave")]
    Leave,
}

/// `sqs-types.error`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(in crate::sandbox) enum Error {
    #[component(name = "other")]
    Other(String),
}

/// A body that is not text cannot be passed: it is neither changed nor left out, so the function does not
/// run.
pub(in crate::sandbox) async fn call<T: Send>(
    function: HandleQueueMessage,
    store: &mut Store<T>,
    id: &str,
    body: &[u8],
    headers: &[(&str, &str)],
) -> wasmtime::Result<Result<(), Option<String>>> {
    let Ok(body) = std::str::from_utf8(body) else {
        let why = "did not run: the body is not UTF-8, and a message of SQS is text";
        return Ok(Err(Some(why.to_owned())));
    };
    let attributes: Vec<_> = headers
        .iter()
        .map(|(name, value)| Attribute {
            name,
            data_type: None,
            value: Value::Text(value),
        })
        .collect();
    let message = Message {
        id: Some(id),
        attributes: &attributes,
        body: Some(body),
    };
    let (answer,) = function.call_async(store, (&message,)).await?;
    Ok(match answer {
        Ok(Action::Delete) => Ok(()),
        Ok(Action::Leave) => Err(None),
        Err(Error::Other(text)) => Err(Some(text)),
    })
}
