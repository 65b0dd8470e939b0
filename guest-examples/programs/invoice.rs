//! A program as a handler: reads an order like `A-1 250`, and writes its invoice to stdout.

use std::io::{Read, Write, stdin, stdout};
use std::process::exit;

const TRY_AGAIN: i32 = 75;
const DROP: i32 = 65;

fn main() {
    let mut body = String::new();
    if stdin().read_to_string(&mut body).is_err() {
        eprintln!("not an order: it is not UTF-8");
        exit(DROP);
    }
    let mut words = body.split_whitespace();
    let (Some(id), Some(amount), None) = (words.next(), words.next(), words.next()) else {
        eprintln!("not an order: it needs an id and an amount");
        exit(DROP);
    };
    if amount == "crash" {
        panic!("a bug in order {id}");
    }
    match amount.parse::<u32>() {
        Ok(0) => {
            eprintln!("order {id} has no amount yet");
            exit(TRY_AGAIN);
        }
        Ok(amount) => {
            let invoice = format!("invoice {id} {amount}\n");
            stdout().write_all(invoice.as_bytes()).expect("stdout takes it");
        }
        Err(_) => {
            eprintln!("not an order: the amount is not a number");
            exit(DROP);
        }
    }
}
