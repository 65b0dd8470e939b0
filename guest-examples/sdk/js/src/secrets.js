import store from "hostler:handler/secrets@1.2.0";

export const secrets = { get: (name) => store.get(name) };
