// Charges an order with Stripe, and publishes its invoice.

import { Drop, handler, publish } from "hostler";
import Stripe from "stripe";
import { z } from "zod";

const Order = z.object({ id: z.string(), cents: z.int().positive(), card: z.string() });

// The host puts the real key into the header: this one is not sent.
const stripe = new Stripe("by-the-grant", { httpClient: Stripe.createFetchHttpClient(), maxNetworkRetries: 0 });

export default handler(Order, async (order) => {
  const payment = { amount: order.cents, currency: "eur", payment_method: order.card, confirm: true };
  try {
    const charged = await stripe.paymentIntents.create(payment, { idempotencyKey: order.id });
    publish("invoices", { order: order.id, payment: charged.id, cents: order.cents });
  } catch (error) {
    if (error instanceof Stripe.errors.StripeCardError) throw new Drop(`order ${order.id}: ${error.message}`);
    throw error;
  }
});
