//! `tcp`: connections that a guest makes itself, to names and addresses of the rules. `wasi:sockets` is there without the
//! grant, and leads nowhere.

pub(super) mod link;
pub mod provider;
pub mod rules;
pub(super) mod sockets;
