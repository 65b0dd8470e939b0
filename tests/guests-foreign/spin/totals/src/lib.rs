//! Keeps a total for each customer in the default store of Spin. A message is `customer amount`; the variable
//! `max_amount` bounds it.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use spin_sdk::key_value::Store;
use spin_sdk::{redis_component, variables};

#[redis_component]
async fn on_order(message: Bytes) -> Result<()> {
    let text = std::str::from_utf8(&message)?;
    let (customer, amount) = text.split_once(' ').context("not an order")?;
    let amount: u64 = amount.parse()?;
    let most: u64 = variables::get("max_amount")?.parse()?;
    if amount > most {
        bail!("{customer} orders {amount}, the most is {most}");
    }
    let store = Store::open_default()?;
    let before = match store.get(customer)? {
        Some(total) => String::from_utf8(total)?.parse()?,
        None => 0,
    };
    let total = before + amount;
    store.set(customer, total.to_string().as_bytes())?;
    println!("{customer}: {total}");
    Ok(())
}
