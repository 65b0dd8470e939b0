// Functions that leave work behind.

const never = new Promise(() => {});

async function charge() {
  await null;
  for (let step = 0; step < 3; step += 1) await Promise.resolve();
  console.log("charged");
}

async function declined() {
  await null;
  throw new Error("declined");
}

async function refresh() {
  await never;
}

export default {
  floating: () => void charge(),
  async floatingBehindAnAwait() {
    await null;
    void charge();
  },
  microtask: () => queueMicrotask(() => void charge()),
  failed: () => void declined(),
  stuck: () => never,
  leftStuck: () => void refresh(),
};

// Of an engine with timers and requests.
export const outside: Record<string, (url: string) => unknown> = {
  timer: () => void setTimeout(charge, 20),
  timerThatThrows: () => void setTimeout(() => JSON.parse("{"), 1),
  cleared: () => clearTimeout(setTimeout(() => console.log("not cleared"), 3_600_000)),
  request: (url) => void fetch(`${url}/json`, { method: "POST", body: "5" }).then(charge),
  requestThatFails: () => void fetch("http://elsewhere.example.com/").then(charge),
  async body(url) {
    const response = await fetch(`${url}/json`, { method: "POST", body: "5" });
    void response.text().then(charge);
  },
};
