use hostler_handler::{Error, handler};
use ulid::Ulid;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    println!("drew {}", Ulid::generate());
    Ok(())
}
