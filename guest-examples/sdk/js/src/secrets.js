import store from "hostler:handler/secrets@1.1.0";

export const secrets = { get: (name) => store.get(name) };
