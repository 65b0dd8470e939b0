use std::time::Duration;

use hostler_publish::{Codec, List, Outgoing, Receipt, Stream, connect};

async fn example(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    // A connection of its own, opened here, and again by the first use after it broke.
    let orders = connect(url, Stream::new("orders")).await?;
    let order = Outgoing::new(r#"{"id":"A-1","amount":9.5}"#)
        .header("tenant", "acme")
        .expires_in(Duration::from_secs(3600));
    if let Receipt::Entry(id) = orders.publish(&order).await? {
        println!("published as {id}");
    }

    // Thousands per round trip, in their order.
    let many: Vec<Outgoing> = (0..1000).map(|n| Outgoing::new(n.to_string())).collect();
    let receipts = orders.publish_all(&many).await?;
    assert_eq!(receipts.len(), 1000);

    // A list that hosts read with `--reliable --codec json`; this message comes in a moment.
    let jobs = List::new("jobs").codec(Codec::Json).reliable();
    let jobs = connect(url, jobs).await?;
    let later = Outgoing::new("remind").delay(Duration::from_millis(300));
    if let Receipt::Scheduled { id, due_ms } = jobs.publish(&later).await? {
        println!("message {id} is due at {due_ms}");
    }
    Ok(())
}
