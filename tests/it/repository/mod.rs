//! The repository: walls, pages, and what a fresh clone promises.

mod architecture;
mod docs_site;
mod get_started;
mod wit_package;
