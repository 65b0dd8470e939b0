// Sends the mail of a shipped parcel.

import { Drop, RetryAfter, handler } from "hostler";
import Mustache from "mustache";

interface Parcel {
  to: string;
  name: string;
  items: { title: string; count: number }[];
}

const MAIL = `<p>Dear {{name}},</p><ul>{{#items}}<li>{{count}} x {{title}}</li>{{/items}}</ul>`;

export default handler<Parcel>(async ({ to, name, items }, message) => {
  const response = await fetch("https://api.resend.com/emails", {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": message.id },
    body: JSON.stringify({ from: "shop@example.com", to, subject: "On its way", html: Mustache.render(MAIL, { name, items }) }),
  });
  if (response.status === 429) throw new RetryAfter(Number(response.headers.get("retry-after") ?? 1) * 1000);
  if (response.status === 422) throw new Drop(`${to} takes no mail: ${await response.text()}`);
  if (!response.ok) throw new Error(`the mail server answered ${response.status}`);
});
