//! `files`: directories of the host that a handler may read. They are the preopened directories of WASI, which the link
//! reads: there is no provider.

pub(super) mod link;
pub mod rules;
