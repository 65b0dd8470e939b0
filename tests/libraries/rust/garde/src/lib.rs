use garde::Validate;
use hostler_handler::{Error, handler};

#[derive(Validate)]
struct Order {
    #[garde(email)]
    mail: String,
}

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let bad = Order { mail: "ada".to_owned() };
    if bad.validate().is_ok() {
        return Err("accepted a bad address".into());
    }
    Ok(Order { mail: "ada@example.com".to_owned() }.validate()?)
}
