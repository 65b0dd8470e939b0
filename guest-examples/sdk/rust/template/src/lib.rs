use hostler_handler::{Drop, Error, Message, handler};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    id: String,
    cents: u64,
}

#[handler]
fn charge(order: Order, message: Message) -> Result<(), Error> {
    if order.cents == 0 {
        return Err(Drop(format!("order {}: nothing to charge", order.id)))?;
    }
    println!("charged order {}, attempt {}", order.id, message.attempt);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_without_an_amount_is_dropped() {
        let order = Order { id: "o-2".to_owned(), cents: 0 };
        let error = charge(order, Message::default()).unwrap_err();
        assert_eq!(error.to_string(), "order o-2: nothing to charge");
        assert!(error.find::<Drop>().is_some());
    }
}
