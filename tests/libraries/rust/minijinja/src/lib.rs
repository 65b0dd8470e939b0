use hostler_handler::{Error, handler};
use minijinja::{Environment, context};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let text = Environment::new().render_str("Hello {{ name|upper }}", context! { name => "Ada" })?;
    (text == "Hello ADA").then_some(()).ok_or_else(|| format!("got {text}").into())
}
