import { Drop, handler } from "hostler";

interface Order {
  id: string;
  cents: number;
}

// Return = done. An error = again, after the backoff of the queue. Drop = a dead letter.
export default handler<Order>(async (order, message) => {
  if (!(order.cents > 0)) throw new Drop(`order ${order.id}: nothing to charge`);
  console.log(`attempt ${message.attempt}: order ${order.id}, ${order.cents} cents`);
});
