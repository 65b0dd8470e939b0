use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    reqwest::blocking::get("https://example.com")?;
    Ok(())
}
