//! `payment-server`: prints its port, then a line for each call, until it is ended. `PAYMENTS_KEY` is the
//! credential that its clients need.

#![expect(clippy::print_stdout, reason = "the demo reads what it prints")]

use std::io;
use std::net::TcpListener;

fn main() -> io::Result<()> {
    let credential = std::env::var("PAYMENTS_KEY").map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("port {}", listener.local_addr()?.port());
    payments::serve(listener, &credential, |call| println!("{call}"));
    loop {
        std::thread::park();
    }
}
