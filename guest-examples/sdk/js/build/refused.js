// Packages that cannot run in a handler: the build says why, and what to take. Only imports of the project are refused: a
// package may name another one and not use it.

const SOCKETS = "it opens sockets, and a handler has none";
const INTL = "it needs `Intl`, which the engines do not have. Take moment-timezone or spacetime";
const HTTP = "it sends requests by modules of Node.js. Take `fetch`, ky or axios";
const COMPILED = "it is compiled for one kind of machine";

const REFUSED = {
  got: HTTP,
  undici: HTTP,
  request: HTTP,
  superagent: HTTP,
  needle: HTTP,
  luxon: INTL,
  "date-fns-tz": INTL,
  "@date-fns/tz": INTL,
  pg: SOCKETS,
  postgres: SOCKETS,
  mysql2: SOCKETS,
  mongodb: SOCKETS,
  mongoose: SOCKETS,
  redis: SOCKETS,
  ioredis: SOCKETS,
  amqplib: SOCKETS,
  kafkajs: SOCKETS,
  nodemailer: `${SOCKETS}. Take the HTTP interface of a mail service`,
  ws: SOCKETS,
  sharp: COMPILED,
  canvas: COMPILED,
  "better-sqlite3": COMPILED,
  bcrypt: `${COMPILED}. Take bcryptjs`,
  argon2: COMPILED,
};

// These send requests by `fetch`.
const FETCHES = /^(axios|ky|stripe|openai|resend|@slack\/web-api|@aws-sdk\/client-.*)$/;

/** Why this engine cannot run a package; `undefined` = nothing is known against it. */
function reason(name, engine) {
  if (Object.hasOwn(REFUSED, name)) return REFUSED[name];
  return engine === "quickjs" && FETCHES.test(name) ? "it needs `fetch`. Build with --engine starlingmonkey" : undefined;
}

export const refused = (engine) => ({
  name: "refused",
  setup({ onResolve }) {
    onResolve({ filter: /^[a-z@]/ }, ({ path, importer }) => {
      const name = /^(@[^/]+\/)?[^/]+/.exec(path)?.[0];
      const why = name && reason(name, engine);
      if (!why || /[\\/]node_modules[\\/]/.test(importer)) return undefined;
      return { errors: [{ text: `${name} cannot run in a handler: ${why}` }] };
    });
  },
});
