// A handler of the SDK that reads an order and logs it.

import { Drop, handler } from "../../../guest-examples/sdk/js/src/index.js";

export default handler(async (order, message) => {
  if (!(order.amount > 0)) throw new Drop(`order ${order.id}: nothing to charge`);
  console.log(`attempt ${message.attempt}: order ${order.id}, ${order.amount}`);
});
