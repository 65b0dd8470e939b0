use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let _ = stripe::Client::new("sk");
    Ok(())
}
