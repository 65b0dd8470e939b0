// Signs a customer up: creates the account, waits until the trial ends, sends a mail, and publishes. hostler records each
// step that is done, so no retry repeats it.

import { handler, hold, publish, recall, remember } from "hostler";
import { z } from "zod";

const SignUp = z.object({ email: z.string(), trial_seconds: z.int() });

interface Account {
  id: string;
  trial_ends: number;
}

export default handler(SignUp, async ({ email, trial_seconds }) => {
  let account = recall<Account>("account");
  if (!account) {
    const { id } = await post("https://accounts.example.com/accounts", { email });
    account = { id, trial_ends: Date.now() + trial_seconds * 1000 };
    remember("account", account);
  }
  const left = account.trial_ends - Date.now();
  if (left > 0) throw hold(left);
  await post("https://mail.example.com/messages", { to: email, template: "trial-ended" });
  publish("accounts", { account: account.id, trial: "ended" });
});

async function post(url: string, body: object): Promise<{ id: string }> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.json() as Promise<{ id: string }>;
}
