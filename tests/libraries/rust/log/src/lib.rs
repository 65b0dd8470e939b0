use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let _ = env_logger::builder().filter_level(log::LevelFilter::Info).try_init();
    log::info!("charged o-1");
    Ok(())
}
