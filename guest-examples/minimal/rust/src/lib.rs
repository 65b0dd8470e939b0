use hostler_handler::{Error, handler};

#[handler]
fn handle(body: Vec<u8>) -> Result<(), Error> {
    println!("{} bytes", body.len());
    Ok(())
}
