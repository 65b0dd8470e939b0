const process = {
  env: {},
  argv: [],
  execArgv: [],
  title: "handler",
  version: "",
  versions: {},
  platform: "wasi",
  browser: true,
  pid: 1,
  cwd: () => "/",
  nextTick: (callback, ...args) => queueMicrotask(() => callback(...args)),
  hrtime: Object.assign(
    () => {
      const now = performance.now();
      return [Math.floor(now / 1000), Math.round((now % 1000) * 1e6)];
    },
    { bigint: () => BigInt(Math.round(performance.now() * 1e6)) },
  ),
  emitWarning: (warning) => console.warn(String(warning)),
  stdout: { isTTY: false, write: (text) => (console.log(String(text).replace(/\n$/, "")), true) },
  stderr: { isTTY: false, write: (text) => (console.error(String(text).replace(/\n$/, "")), true) },
  memoryUsage: () => ({ heapUsed: 0 }),
  uptime: () => 0,
};
// Nothing happens to a handler that it could listen to.
for (const name of ["on", "once", "off", "addListener", "removeListener", "removeAllListeners"]) process[name] = () => process;
process.emit = () => false;
process.listenerCount = () => 0;

export default process;
export const { argv, cwd, emitWarning, env, hrtime, nextTick, pid, platform, stderr, stdout, version, versions } = process;
