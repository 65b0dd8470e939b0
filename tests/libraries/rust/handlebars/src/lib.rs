use handlebars::Handlebars;
use hostler_handler::{Error, handler};
use serde_json::json;

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let text = Handlebars::new().render_template("Hello {{name}}", &json!({ "name": "<Ada>" }))?;
    (text == "Hello &lt;Ada&gt;").then_some(()).ok_or_else(|| format!("got {text}").into())
}
