//! The pure core of hostler: the rules of delivery, and the layouts on the wire. It reads no clock, no socket and no
//! file, so all of it runs under test, under fuzzing and in the model.

pub mod delivery;
pub mod wire;
