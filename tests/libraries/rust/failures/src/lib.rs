//! Six failures, for the test of causes.

use std::fmt;

use hostler_handler::{Error, handler};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    fails: String,
    n: usize,
    #[serde(default)]
    lines: Vec<String>,
    buyer: Option<String>,
}

#[derive(Debug)]
struct Declined(usize);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}: declined", self.0)
    }
}

impl std::error::Error for Declined {}

#[handler]
fn handle(order: Order) -> Result<(), Error> {
    let n = order.n;
    match &*order.fails {
        "panic" => panic!("order {n} hit a bug"),
        "nil" => println!("{}", order.buyer.unwrap()),
        "index" => println!("{}", order.lines[n]),
        "error" => return Err(format!("order {n}: no such customer"))?,
        "wrapped" => println!("{}", format!("x{n}").parse::<u8>()?),
        "type" => Err(Declined(n))?,
        _ => {}
    }
    Ok(())
}
