// A handler that componentize-js builds, without the SDK.

async function charge() {
  await null;
  for (let step = 0; step < 3; step += 1) await Promise.resolve();
  console.log("charged");
}

const cases = {
  promises: () => void charge(),
  awaited: (url) => fetch(`${url}/json`).then(charge),
  request: (url) => void fetch(`${url}/json`).then(charge),
  stuck: () => new Promise(() => {}),
};

export const messageHandler = {
  async handle({ body }) {
    const { leaves, url } = JSON.parse(new TextDecoder().decode(body));
    await cases[leaves](url);
    return { tag: "ack" };
  },
};
