use hostler_handler::{Error, handler};
use regex::Regex;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let found = Regex::new(r"^(\p{L}+)-(\d+)$")?.captures("Größe-42").map(|found| found[2].to_owned());
    (found.as_deref() == Some("42")).then_some(()).ok_or_else(|| format!("got {found:?}").into())
}
