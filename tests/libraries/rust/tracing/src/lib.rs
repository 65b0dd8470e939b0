use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    // In a reused instance it is there already.
    let _ = tracing_subscriber::fmt().without_time().try_init();
    tracing::info!(order = "o-1", "charged");
    Ok(())
}
