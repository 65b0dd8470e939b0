use hostler_handler::{Error, handler};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    name: String,
    cents: u32,
}

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let file = "cents,name\n7,Ada\n8,\"Hopper, Grace\"\n";
    let rows: Vec<Row> = csv::Reader::from_reader(file.as_bytes()).deserialize().collect::<Result<_, _>>()?;
    let last = rows.last().ok_or("no row")?;
    (last.name == "Hopper, Grace" && last.cents == 8).then_some(()).ok_or_else(|| format!("got {}", last.name).into())
}
