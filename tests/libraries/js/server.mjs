// The servers that the libraries talk to.

import { createServer } from "node:http";

const objects = new Map();

const answers = {
  "/json": (request, body) => ({ method: request.method, body }),
  "/v1/payment_intents": (_, body) =>
    body.includes("amount=402")
      ? [402, { error: { type: "card_error", message: "declined" } }]
      : { id: "pi_1", object: "payment_intent", status: "succeeded" },
  "/openai/chat/completions": () => ({ id: "c", choices: [{ message: { role: "assistant", content: "hello" } }] }),
  "/resend/emails": () => ({ id: "m-1" }),
  "/slack/chat.postMessage": () => ({ ok: true, ts: "1.2" }),
};

/** Start it on a free port of this machine. */
export function serve() {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const { pathname } = new URL(request.url, "http://server");
    const json = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    if (pathname.startsWith("/bucket/")) {
      // The SDK of AWS sends the text in chunks.
      if (request.method === "PUT") objects.set(pathname, /the text/.exec(body)?.[0] ?? "");
      return response.end(request.method === "PUT" ? "" : objects.get(pathname));
    }
    if (pathname.startsWith("/status/")) return json(Number(pathname.split("/").pop()), {});
    const answer = answers[pathname]?.(request, body);
    if (Array.isArray(answer)) return json(...answer);
    return answer ? json(200, answer) : json(404, { error: { message: pathname } });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}
