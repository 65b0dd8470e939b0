//! The only room with wasmtime in it: load a component, call it within limits.
