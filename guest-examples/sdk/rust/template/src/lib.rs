use hostler_handler::{Drop, Error, Message, handler};
// @with publish
use hostler_handler::publish;
// @end
// @with key-value
use hostler_handler::key_value;
// @end
// @with secrets
use hostler_handler::secret;
// @end
// @with publish http
use serde::Serialize;
// @end
use serde::Deserialize;

// @with publish http
#[derive(Serialize)]
// @end
#[derive(Deserialize)]
struct Order {
    id: String,
    // @with publish http key-value
    customer: String,
    // @end
    cents: u64,
}

#[handler]
fn charge(order: Order, message: Message) -> Result<(), Error> {
    if order.cents == 0 {
        return Err(Drop(format!("order {}: nothing to charge", order.id)))?;
    }
    // @with secrets
    if message.headers.get("x-shop-token") != Some(&secret("shop")?) {
        return Err(Drop("the token of the shop is wrong".to_owned()))?;
    }
    // @end
    // @with http
    // hostler adds an idempotency key, the same in every attempt: no order is paid twice.
    let charges = "https://payments.example.com/charges";
    match waki::Client::new().post(charges).json(&order).send()?.status_code() {
        200..=299 => {}
        402 => return Err(Drop(format!("order {}: the payment was declined", order.id)))?,
        status => return Err(format!("the payment server said {status}"))?,
    }
    // @end
    // @with key-value
    // Written with the ack: each order counts once.
    let key = format!("total:{}", order.customer);
    let total = key_value::get(&key)?.unwrap_or_default();
    let total: u64 = String::from_utf8(total)?.parse().unwrap_or(0);
    key_value::set(&key, (total + order.cents).to_string())?;
    // @end
    // @with publish
    // With the ack, too: each order has one invoice.
    publish("invoices", &order)?;
    // @end
    println!("order {} is done, attempt {}", order.id, message.attempt);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_without_an_amount_is_dropped() {
        let order = Order {
            id: "o-2".to_owned(),
            // @with publish http key-value
            customer: "c-7".to_owned(),
            // @end
            cents: 0,
        };
        let error = charge(order, Message::default()).unwrap_err();
        assert_eq!(error.to_string(), "order o-2: nothing to charge");
        assert!(error.find::<Drop>().is_some());
    }
}
