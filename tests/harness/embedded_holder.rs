//! Uses the embedded server of a directory until its stdin ends. Says on stdout where it is, and
//! `stopped` when it has left.

use std::io::Write as _;
use std::path::Path;

use hostler::embedded::Embedded;
use tokio::io::AsyncReadExt as _;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let dir = std::env::args_os().nth(1).ok_or("which directory?")?;
    let embedded = Embedded::start(Path::new(&dir)).await?;
    writeln!(std::io::stdout(), "{}", embedded.url())?;
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    embedded.stop().await?;
    writeln!(std::io::stdout(), "stopped")?;
    Ok(())
}
