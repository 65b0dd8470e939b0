import store from "wasi:config/store@0.2.0-rc.1";

export const config = { get: (name) => store.get(name) ?? undefined };
