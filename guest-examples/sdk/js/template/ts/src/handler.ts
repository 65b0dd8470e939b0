import { Drop, handler } from "hostler";
// @with key-value
import { keyValue } from "hostler";
// @end
// @with publish
import { publish } from "hostler";
// @end
// @with secrets
import { secrets } from "hostler";
// @end

interface Order {
  id: string;
  // @with key-value
  customer: string;
  // @end
  cents: number;
}

// Return = done. An error = again, after the backoff of the queue. Drop = a dead letter.
export default handler<Order>(async (order, message) => {
  if (!(order.cents > 0)) throw new Drop(`order ${order.id}: nothing to charge`);
  // @with secrets
  if (message.headers["x-shop-token"] !== secrets.get("shop")) throw new Drop("the token of the shop is wrong");
  // @end
  // @with http
  // hostler adds an idempotency key, the same in every attempt: no order is paid twice.
  const charge = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(order) };
  const charged = await fetch("https://payments.example.com/charges", charge);
  if (charged.status === 402) throw new Drop(`order ${order.id}: the payment was declined`);
  if (!charged.ok) throw new Error(`the payment server said ${charged.status}`);
  // @end
  // @with key-value
  // Written with the ack: each order counts once.
  const total = keyValue.get<number>(`total:${order.customer}`) ?? 0;
  keyValue.set(`total:${order.customer}`, total + order.cents);
  // @end
  // @with publish
  // With the ack, too: each order has one invoice.
  publish("invoices", order);
  // @end
  console.log(`attempt ${message.attempt}: order ${order.id} is done`);
});
