// @with key-value
//! Remembers how much each customer has ordered.

use crate::hostler::handler::key_value;
use crate::hostler::handler::types::Outcome;
use crate::later;
use crate::order::Order;

/// The sum is written together with the acknowledgement: each order counts once.
pub fn add(order: &Order) -> Result<(), Outcome> {
    let key = format!("total:{}", order.customer);
    let known = key_value::get(&key).map_err(|why| later(&why))?;
    let known = String::from_utf8(known.unwrap_or_default()).unwrap_or_default();
    let sum = known.parse::<u64>().unwrap_or(0) + u64::from(order.cents);
    key_value::set(&key, sum.to_string().as_bytes(), None).map_err(|why| later(&why))?;
    // A customer who orders needs no reminder. It goes with the acknowledgement, too.
    let reminder = format!("reminder:{}", order.customer);
    key_value::delete(&reminder).map_err(|why| later(&why))?;
    // At once: an order that is handled twice counts twice.
    key_value::increment("attempts", 1).map_err(|why| later(&why))?;
    Ok(())
}
// @end
