use hostler_handler::{Error, handler};
use tera::{Context, Tera};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let mut context = Context::new();
    context.insert("name", "Ada");
    let text = Tera::one_off("Hello {{ name | upper }}", &context, true)?;
    (text == "Hello ADA").then_some(()).ok_or_else(|| format!("got {text}").into())
}
