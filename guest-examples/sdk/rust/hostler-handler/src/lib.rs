//! Handlers of messages for hostler.
//!
//! ```ignore
//! use hostler_handler::{Drop, Error};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: String,
//!     cents: u64,
//! }
//!
//! #[hostler_handler::handler]
//! fn charge(order: Order) -> Result<(), Error> {
//!     if order.cents == 0 {
//!         return Err(Drop(format!("order {}: nothing to charge", order.id)).into());
//!     }
//!     println!("charged {}", order.id);
//!     Ok(())
//! }
//! ```
//!
//! `Ok` acks the message. After an error the message comes again, after the backoff of the queue, and the error is the
//! cause of its death when no attempt is left. [`Drop`] and [`RetryAfter`] are errors that end an attempt otherwise. A
//! panic is a fault: the message comes again as well.

mod error;
mod host;
mod message;
mod run;

pub use error::{Drop, Error, RetryAfter};
pub use host::{Publication, config, hold, key_value, publish, recall, remember, reply, secret};
pub use hostler_handler_macros::handler;
pub use message::Message;
#[cfg(feature = "async")]
pub use run::spawn;

/// Bindings of the WIT package, for calls that this crate does not have.
pub mod bindings {
    #![expect(missing_docs, reason = "they are generated")]
    wit_bindgen::generate!({
        path: "wit",
        world: "handler",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "__export",
        default_bindings_module: "hostler_handler::bindings",
    });
}

#[doc(hidden)]
pub use bindings::__export;

/// For the attribute only.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings;
    pub use crate::bindings::exports::hostler::handler::message_handler::Guest;
    pub use crate::bindings::hostler::handler::types::{Message as Incoming, Outcome};
    pub use crate::message::read;
    pub use crate::run::answer;
    #[cfg(feature = "async")]
    pub use crate::run::run;
}
