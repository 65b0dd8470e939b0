//! What an order costs.

/// The price in cents.
pub fn price(order: &str) -> u32 {
    let order = order.trim();
    order.parse().expect("a price is a number")
}
