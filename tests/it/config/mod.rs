//! Configuration files.

mod config_files;
