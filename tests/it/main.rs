//! The tests.

#[cfg(test)]
mod queue_connection;
#[cfg(test)]
mod queue_faults;
#[cfg(test)]
mod queue_scene;
#[cfg(test)]
mod queue_startup;
#[cfg(test)]
mod queue_stream;
#[cfg(test)]
mod queue_upkeep;
