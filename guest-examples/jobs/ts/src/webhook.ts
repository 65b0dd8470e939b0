// Takes webhooks of a shop whose signature is right, each one once.

import { createHmac, timingSafeEqual } from "node:crypto";

import { Drop, handler, keyValue, publish, secrets, text } from "hostler";

const DAY_MS = 86_400_000;

export default handler(text, (body, { headers }) => {
  const given = Buffer.from(headers["x-signature"] ?? "", "hex");
  const right = createHmac("sha256", secrets.get("webhooks")).update(body).digest();
  if (given.length !== right.length || !timingSafeEqual(given, right)) throw new Drop("the signature is wrong");

  const event = JSON.parse(body) as { id: string; type: string };
  if (keyValue.get(`seen:${event.id}`)) return;
  keyValue.set(`seen:${event.id}`, true, DAY_MS);
  publish("events", body, { type: event.type });
});
