function assert(isTrue, message) {
  if (!isTrue) throw message instanceof Error ? message : new Error(message ?? "the assertion failed");
}
assert.ok = assert;
assert.equal = (a, b, message) => assert(a == b, message);
assert.strictEqual = (a, b, message) => assert(Object.is(a, b), message);
assert.notStrictEqual = (a, b, message) => assert(!Object.is(a, b), message);
module.exports = assert;
