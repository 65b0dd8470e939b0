//! What `spin new -t redis-rust` writes: prints a message that is text, and fails otherwise.

use std::str::from_utf8;

use anyhow::Result;
use bytes::Bytes;
use spin_sdk::redis_component;

#[redis_component]
fn on_message(message: Bytes) -> Result<()> {
    println!("{}", from_utf8(&message)?);
    Ok(())
}
