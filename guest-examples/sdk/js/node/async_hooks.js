// One message runs at a time, so there is one store.
export class AsyncLocalStorage {
  #store;
  run(store, callback, ...args) {
    const before = this.#store;
    this.#store = store;
    const restore = () => (this.#store = before);
    let result;
    try {
      result = callback(...args);
    } catch (error) {
      restore();
      throw error;
    }
    if (typeof result?.then === "function") return Promise.resolve(result).finally(restore);
    restore();
    return result;
  }
  enterWith(store) {
    this.#store = store;
  }
  getStore() {
    return this.#store;
  }
}
export class AsyncResource {
  runInAsyncScope(callback, self, ...args) {
    return callback.apply(self, args);
  }
}
export default { AsyncLocalStorage, AsyncResource };
