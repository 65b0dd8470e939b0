use hostler_handler::{Error, handler};
use uuid::Uuid;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    println!("drew {} {}", Uuid::new_v4(), Uuid::now_v7());
    Ok(())
}
