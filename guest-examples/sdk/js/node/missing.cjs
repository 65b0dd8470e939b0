// What needs a machine that a handler does not have. It throws when it is used, not when it is named.

exports.missing = function missing(name) {
  const refuse = (what) => {
    throw new Error(`${what} of Node.js does not exist in a handler`);
  };
  const get = (target, key) => {
    if (key === "prototype") return target.prototype;
    if (typeof key === "symbol" || key === "then" || key === "__esModule") return undefined;
    return missing(key === "default" ? name : `${name}.${key}`);
  };
  return new Proxy(function () {}, {
    get,
    // The bundle copies what a module has, and looks for the rest in its prototype.
    getPrototypeOf: () => new Proxy({}, { get }),
    apply: () => refuse(name),
    construct: () => refuse(name),
  });
};
