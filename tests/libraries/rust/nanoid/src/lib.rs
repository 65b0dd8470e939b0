use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    println!("drew {}", nanoid::nanoid!());
    Ok(())
}
