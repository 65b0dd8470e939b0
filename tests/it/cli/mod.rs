//! Commands, and text on terminals.

mod cli_component;
mod cli_config;
mod cli_demo;
mod cli_dev;
pub(crate) mod cli_new;
mod cli_new_small;
mod cli_new_with;
mod cli_run;
mod cli_test;
mod cli_words;
mod see_queues;
mod supervisor;
mod terminal_safety;
mod terminal_views;
mod watch_lines;
