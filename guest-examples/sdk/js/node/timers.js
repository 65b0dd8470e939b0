const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = globalThis;
export { clearImmediate, clearInterval, clearTimeout, setImmediate, setInterval, setTimeout };
export default { clearImmediate, clearInterval, clearTimeout, setImmediate, setInterval, setTimeout };
