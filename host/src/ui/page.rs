//! The files of the page. They are part of the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

const INDEX: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/app.js");
const STYLE: &str = include_str!("page/app.css");
/// The charts: `vendor/README.md`.
const CHARTS: &str = include_str!("page/uplot/uPlot.iife.min.js");
const CHARTS_STYLE: &str = include_str!("page/uplot/uPlot.min.css");

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

pub(super) async fn index() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], INDEX)
}

pub(super) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, JAVASCRIPT)], SCRIPT)
}

pub(super) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, CSS)], STYLE)
}

pub(super) async fn charts() -> impl IntoResponse {
    ([(CONTENT_TYPE, JAVASCRIPT)], CHARTS)
}

pub(super) async fn charts_style() -> impl IntoResponse {
    ([(CONTENT_TYPE, CSS)], CHARTS_STYLE)
}
