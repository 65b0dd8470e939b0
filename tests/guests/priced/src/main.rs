//! A program whose input is an order.

use std::io::{Read as _, stdin};

fn main() {
    let mut order = String::new();
    stdin().read_to_string(&mut order).expect("stdin is there");
    println!("{}", priced::price(&order));
}
