//! A program that makes requests: `call:...` of the crate `standard-http`.

use std::io::{Read as _, stdin};

fn main() -> Result<(), String> {
    let mut input = Vec::new();
    stdin().read_to_end(&mut input).expect("stdin is there");
    foreign::handle(&input, &standard_http::act)
}
