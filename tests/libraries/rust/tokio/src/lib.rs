use std::time::Duration;

use hostler_handler::{Error, handler};
use tokio::runtime::Builder;
use tokio::time::sleep;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let beside = tokio::spawn(async { sleep(Duration::from_millis(10)).await });
        Ok(beside.await?)
    })
}
