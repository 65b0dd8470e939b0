// Functions that fail.

class OutOfStock extends Error {}

interface Order {
  n: number;
  price?: { cents: number };
}

const price = (order: Order) => order.price!.cents;

async function weight(order: Order) {
  await null;
  return order.price!.cents;
}

function size({ n }: Order) {
  return [].concat(new Array(-n));
}

async function ship({ n }: Order) {
  await null;
  throw new OutOfStock(`item ${n}`);
}

async function charge({ n }: Order) {
  const declined = new Error(`card ${n} is declined`);
  throw new Error(`order ${n} is not charged`, { cause: declined });
}

function parse({ n }: Order) {
  return JSON.parse(`{${n}`);
}

export default { price, weight, size, ship, charge, parse };
