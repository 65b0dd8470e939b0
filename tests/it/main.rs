//! The tests. `make test` runs more of them at the same time than there are cores. A test that compares times
//! or memory is in a module `measured` of its file: `make test` runs those alone, one after the other. A test in
//! a module `long` runs in `make test-all` only: CONTRIBUTING.md lists them, and what is in their place in
//! `make test`.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod away_connection;
#[cfg(test)]
mod away_data;
#[cfg(test)]
mod away_process;
#[cfg(test)]
mod away_refusals;
#[cfg(test)]
mod away_scene;
#[cfg(test)]
mod away_server;
#[cfg(test)]
mod cli_component;
#[cfg(test)]
mod cli_config;
#[cfg(test)]
mod cli_dev;
#[cfg(test)]
mod cli_new;
#[cfg(test)]
mod cli_new_small;
#[cfg(test)]
mod cli_new_with;
#[cfg(test)]
mod cli_run;
#[cfg(test)]
mod cli_test;
#[cfg(test)]
mod cli_words;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod config_files;
#[cfg(test)]
mod dlq_api;
#[cfg(test)]
mod dlq_commands;
#[cfg(test)]
mod dlq_docs;
#[cfg(test)]
mod dlq_filters;
#[cfg(test)]
mod dlq_guard;
#[cfg(test)]
mod dlq_log;
#[cfg(test)]
mod dlq_maxlen;
#[cfg(test)]
mod dlq_peek;
#[cfg(test)]
mod dlq_reasons;
#[cfg(test)]
mod dlq_replay;
#[cfg(test)]
mod dlq_scene;
#[cfg(test)]
mod dlq_slots;
#[cfg(test)]
mod dlq_trial;
#[cfg(test)]
mod docs_site;
#[cfg(test)]
mod e2e_batch;
#[cfg(test)]
mod e2e_crash;
#[cfg(test)]
mod e2e_delay;
#[cfg(test)]
mod e2e_drain;
#[cfg(test)]
mod e2e_group;
#[cfg(test)]
mod e2e_lease;
#[cfg(test)]
mod e2e_load;
#[cfg(test)]
mod e2e_log;
#[cfg(test)]
mod e2e_outcomes;
#[cfg(test)]
mod e2e_refused;
#[cfg(test)]
mod e2e_retention;
#[cfg(test)]
mod e2e_sandbox;
#[cfg(test)]
mod e2e_scene;
#[cfg(test)]
mod e2e_start;
#[cfg(test)]
mod effects_batch;
#[cfg(test)]
mod effects_dedup;
#[cfg(test)]
mod effects_docs;
#[cfg(test)]
mod effects_exactly_once;
#[cfg(test)]
mod effects_key_value;
#[cfg(test)]
mod effects_key_value_checked;
#[cfg(test)]
mod effects_outbox;
#[cfg(test)]
mod effects_outbox_cluster;
#[cfg(test)]
mod effects_publish;
#[cfg(test)]
mod effects_rules;
#[cfg(test)]
mod embedded_server;
#[cfg(test)]
mod example_charge;
#[cfg(test)]
mod fuzz_bodies;
#[cfg(test)]
mod get_started;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod js_promises;
#[cfg(test)]
mod language_conformance;
#[cfg(test)]
mod language_redis;
#[cfg(test)]
mod language_table;
#[cfg(test)]
mod large_messages;
#[cfg(test)]
mod list_cli;
#[cfg(test)]
mod list_loop;
#[cfg(test)]
mod list_lost_replies;
#[cfg(test)]
mod list_queue;
#[cfg(test)]
mod list_recovery;
#[cfg(test)]
mod list_scene;
#[cfg(test)]
mod list_settle;
#[cfg(test)]
mod list_skew;
#[cfg(test)]
mod list_values;
#[cfg(test)]
mod once_scene;
#[cfg(test)]
mod outbound_hostile;
#[cfg(test)]
mod outbound_http;
#[cfg(test)]
mod outbound_names;
#[cfg(test)]
mod outbound_queue;
#[cfg(test)]
mod outbound_scene;
#[cfg(test)]
mod outbound_secrets;
#[cfg(test)]
mod policy_commands;
#[cfg(test)]
mod policy_dead_letters;
#[cfg(test)]
mod policy_kinds;
#[cfg(test)]
mod policy_live;
#[cfg(test)]
mod policy_scene;
#[cfg(test)]
mod policy_unknown;
#[cfg(test)]
mod producers_docs;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod programs_queue;
#[cfg(test)]
mod publish_later;
#[cfg(test)]
mod publish_pipeline;
#[cfg(test)]
mod publish_words;
#[cfg(test)]
mod pubsub;
#[cfg(test)]
mod queue_connection;
#[cfg(test)]
mod queue_contract;
#[cfg(test)]
mod queue_faults;
#[cfg(test)]
mod queue_lost_replies;
#[cfg(test)]
mod queue_scene;
#[cfg(test)]
mod queue_startup;
#[cfg(test)]
mod queue_stream;
#[cfg(test)]
mod queue_terms;
#[cfg(test)]
mod queue_upkeep;
#[cfg(test)]
mod runtime_loop;
#[cfg(test)]
mod sandbox_adapters;
#[cfg(test)]
mod sandbox_batch;
#[cfg(test)]
mod sandbox_bombs;
#[cfg(test)]
mod sandbox_call;
#[cfg(test)]
mod sandbox_compile;
#[cfg(test)]
mod sandbox_corpus;
#[cfg(test)]
mod sandbox_examples;
#[cfg(test)]
mod sandbox_forgets;
#[cfg(test)]
mod sandbox_fuzz;
#[cfg(test)]
mod sandbox_grants;
#[cfg(test)]
mod sandbox_hostile;
#[cfg(test)]
mod sandbox_limits;
#[cfg(test)]
mod sandbox_load;
#[cfg(test)]
mod sandbox_logs;
mod sandbox_snapshot;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod security_user;
#[cfg(test)]
mod see_queues;
#[cfg(test)]
mod simple_list;
#[cfg(test)]
mod slow_link;
#[cfg(test)]
mod supervisor;
#[cfg(test)]
mod swap_batch;
#[cfg(test)]
mod swap_deploy;
#[cfg(test)]
mod swap_file;
#[cfg(test)]
mod swap_line;
#[cfg(test)]
mod swap_pace;
#[cfg(test)]
mod swap_rules;
#[cfg(test)]
mod swap_scene;
#[cfg(test)]
mod swap_storm;
#[cfg(test)]
mod swap_trials;
#[cfg(test)]
mod swap_verdicts;
#[cfg(test)]
mod swap_versions;
#[cfg(test)]
mod telemetry_otlp;
#[cfg(test)]
mod terminal_safety;
#[cfg(test)]
mod terminal_views;
#[cfg(test)]
mod ui_http;
#[cfg(test)]
mod watch_lines;
#[cfg(test)]
mod wire_proxy;
#[cfg(test)]
mod wit_package;
#[cfg(test)]
mod worlds;
#[cfg(test)]
mod worlds_queue;
#[cfg(test)]
mod worlds_table;

/// Files of which `make test` runs no test.
#[cfg(test)]
#[path = "."]
mod long {
    mod interop;
    mod worlds_real;
}
