//! What a host costs that has nothing to do.

use std::io::BufRead;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drain::Kind;
use crate::latency::monitor;
use crate::report::{Report, Target, mebibytes, table};
use crate::server::Server;
use crate::{Outcome, Setup};

const SECONDS: u64 = 30;
/// After the start, before it is measured.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
const CORE_PERCENT: f64 = 0.5;
const MEMORY_MIB: f64 = 40.0;
const COMMANDS: f64 = 10.0;

pub fn measure(setup: &Setup) -> Outcome<Report> {
    let seconds = setup.seconds(SECONDS);
    let (mut rows, mut raw) = (Vec::new(), Vec::new());
    for (name, kind) in [("stream", Kind::Stream), ("reliable list", Kind::List)] {
        let mut server = Server::start(setup.folder(), None)?;
        if kind == Kind::Stream {
            server.create_stream()?;
        }
        let host = setup
            .host(&server.url(), kind, "ack", false)
            .start(setup.folder())?;
        let mut hosts = [host];
        server.wait_for(&mut hosts)?;
        std::thread::sleep(SETTLED_AFTER);
        let commands = |server: &mut Server| server.info("stats", "total_commands_processed");
        let (cpu, redis, asked) = (
            hosts[0].cpu()?,
            server.process.cpu()?,
            commands(&mut server)?,
        );
        std::thread::sleep(Duration::from_secs(seconds));
        let share = |cpu: f64| cpu / seconds as f64 * 100.0;
        let core = share(hosts[0].cpu()? - cpu);
        let redis = share(server.process.cpu()? - redis);
        // The question itself is one of them.
        let commands = (commands(&mut server)? - asked - 1.0) / seconds as f64;
        let sent = sent(server.address(), seconds)? as f64 / seconds as f64;
        let memory = hosts[0].memory("VmRSS:")?;
        let [host] = hosts;
        host.stop()?;
        rows.push([
            name.to_owned(),
            format!("{core:.2} % ({})", Target::AtMost(CORE_PERCENT).judge(core)),
            format!(
                "{} ({})",
                mebibytes(memory),
                Target::AtMost(MEMORY_MIB).judge(memory / f64::from(1 << 20))
            ),
            format!("{sent:.1} ({})", Target::AtMost(COMMANDS).judge(sent)),
            format!("{commands:.1}"),
            format!("{redis:.2} %"),
        ]);
        raw.push(json!({
            "queue": name, "seconds": seconds, "core_percent": core, "memory_bytes": memory,
            "sent_per_second": sent, "commands_per_second": commands, "redis_core_percent": redis,
        }));
    }
    let names = [
        "queue",
        "host, of a core",
        "host, memory",
        "commands sent/s",
        "with those inside scripts",
        "Redis, of a core",
    ];
    let text = format!(
        "A host without messages, for {seconds} s. `MONITOR` counts what it sends, behind the time in which the others are \
         measured.\n\n{}",
        table(1, names, &rows)
    );
    Ok(Report {
        raw: Value::Array(raw),
        text,
        plots: Vec::new(),
    })
}

/// How many commands clients send to this server in some seconds. Those that scripts run are not counted.
fn sent(address: (&str, u16), seconds: u64) -> Outcome<usize> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut sent = 0;
    // A host asks Redis at least once a second.
    for line in monitor(address)?.lines() {
        if Instant::now() > until {
            break;
        }
        // 1700000000.000000 [0 lua] "TIME"
        let by = line?.split(']').next().map(str::to_owned);
        sent += usize::from(by.is_some_and(|by| !by.ends_with(" lua")));
    }
    Ok(sent)
}
