import Stripe from "stripe";

export default async (url) => {
  const { hostname, port } = new URL(url);
  const stripe = new Stripe("sk_test", { host: hostname, port, protocol: "http", maxNetworkRetries: 0 });
  const paid = await stripe.paymentIntents.create({ amount: 100, currency: "eur" }, { idempotencyKey: "o-1" });
  const refused = await stripe.paymentIntents.create({ amount: 402, currency: "eur" }).catch((error) => error.type);
  return `${paid.id} ${paid.status} ${refused}`;
};
