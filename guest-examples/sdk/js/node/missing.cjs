// What needs a machine that a handler does not have. It throws when it is used, not when it is named.

exports.missing = function missing(name) {
  const refuse = (what) => {
    throw new Error(`${what} of Node.js does not exist in a handler`);
  };
  return new Proxy(function () {}, {
    get(target, key) {
      if (key === "prototype") return target.prototype;
      if (typeof key === "symbol" || key === "then" || key === "__esModule") return undefined;
      if (key === "default") return missing(name);
      return /^[a-z]/.test(key) && key === "promises" ? missing(`${name}.promises`) : missing(`${name}.${key}`);
    },
    apply: () => refuse(name),
    construct: () => refuse(name),
  });
};
