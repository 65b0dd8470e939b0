use chrono::{DateTime, Datelike, Utc};
use chrono_tz::Europe::Berlin;
use hostler_handler::{Error, handler};

#[handler]
fn handle(_: Vec<u8>) -> Result<(), Error> {
    let at = DateTime::from_timestamp(1_751_364_000, 0).ok_or("no time")?;
    let text = at.with_timezone(&Berlin).to_rfc3339();
    let is_now = Utc::now().year() >= 2025;
    (text == "2025-07-01T12:00:00+02:00" && is_now).then_some(()).ok_or_else(|| format!("got {text}").into())
}
