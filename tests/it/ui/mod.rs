//! The dashboard over HTTP.

mod ui_http;
