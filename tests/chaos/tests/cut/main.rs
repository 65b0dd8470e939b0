//! A cut of the fault suite, of some seconds: `make chaos` runs all of it.

#[cfg(test)]
mod broken_hosts;
#[cfg(test)]
mod cells;
