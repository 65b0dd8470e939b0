//! Connections: servers that are away, clusters, rights, refusals.

mod away_connection;
mod away_data;
mod away_process;
mod away_refusals;
mod away_scene;
mod away_server;
pub(crate) mod cluster;
mod embedded_server;
mod hints;
pub(crate) mod security_user;
mod slow_link;
mod wire_proxy;
