//! A private Redis for one measurement: its own port on 127.0.0.1, nothing on disk.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, Value, cmd};

use crate::process::{Process, Program};
use crate::{Outcome, fail};

const STARTS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How many messages one script writes.
const WRITTEN: u64 = 1000;
/// The queue of every measurement, and its group.
pub const QUEUE: &str = "orders";
pub const GROUP: &str = "g";
/// A due time far away: 10,000 hours after the year 2100.
const NEVER_MS: u64 = 4_138_646_400_000;

pub struct Server {
    pub process: Process,
    port: u16,
    link: Connection,
}

impl Server {
    /// Start one, on these cores only if any are named.
    pub fn start(folder: &Path, cpus: Option<&str>) -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut program = Program::new(Path::new("redis-server"))
            .words(&format!(
                "--port {port} --bind 127.0.0.1 --appendonly no --loglevel warning --dir"
            ))
            .path(folder)
            .arg("--save")
            .arg("");
        if let Some(cpus) = cpus {
            program = program.on(cpus);
        }
        let mut process = program.start(folder)?;
        let client = redis::Client::open(url(port))?;
        let began = Instant::now();
        let link = loop {
            match client.get_connection() {
                Ok(link) => break link,
                Err(error) if began.elapsed() > STARTS_WITHIN => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            process.check()?;
        };
        link.set_read_timeout(Some(ANSWERS_WITHIN))?;
        Ok(Self {
            process,
            port,
            link,
        })
    }

    pub fn url(&self) -> String {
        url(self.port)
    }

    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    pub fn ask<T: FromRedisValue>(&mut self, command: &mut Cmd) -> Outcome<T> {
        Ok(command.query(&mut self.link)?)
    }

    /// Make the stream and its group, which reads from the beginning.
    pub fn create_stream(&mut self) -> Outcome<()> {
        let mut create = cmd("XGROUP");
        create
            .arg("CREATE")
            .arg(QUEUE)
            .arg(GROUP)
            .arg(0)
            .arg("MKSTREAM");
        self.ask(create.arg("ENTRIESREAD").arg(0))
    }

    /// Append messages to the stream of this key.
    pub fn fill_stream(&mut self, key: &str, messages: u64, body: &str) -> Outcome<()> {
        // Bodies end with a number: none is like the one before it.
        let script = "local start = string.sub(ARGV[2], 1, -10) \
             for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', '_payload', \
               start .. string.format('%09d', i)) end";
        self.fill(script, key, messages, body)
    }

    /// Push messages to the list.
    pub fn fill_list(&mut self, messages: u64, body: &str) -> Outcome<()> {
        self.fill(
            "for i = 1, ARGV[1] do redis.call('LPUSH', KEYS[1], ARGV[2]) end",
            QUEUE,
            messages,
            body,
        )
    }

    /// Messages that were published with a delay: none of them is due.
    pub fn fill_delayed(&mut self, messages: u64) -> Outcome<()> {
        let script = "local n = redis.call('ZCARD', KEYS[1]) \
             for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[3], \
               string.format('%016d', n + i) .. ARGV[2]) end";
        self.fill(
            script,
            &format!("{{{QUEUE}}}:delayed"),
            messages,
            &"x".repeat(100),
        )
    }

    /// Deliver unread messages to a consumer that does nothing with them.
    pub fn take(&mut self, consumer: &str, messages: u64) -> Outcome<()> {
        for count in chunks(messages) {
            let mut read = cmd("XREADGROUP");
            read.arg("GROUP")
                .arg(GROUP)
                .arg(consumer)
                .arg("COUNT")
                .arg(count);
            let _: Value = self.ask(read.arg("STREAMS").arg(QUEUE).arg(">"))?;
        }
        Ok(())
    }

    /// Park unread messages, as a host parks what a handler wants later: none of them is due.
    pub fn park(&mut self, messages: u64) -> Outcome<()> {
        // The mark of a group that hosts know. They look through all parked deliveries of one that they do not know.
        let mut mark = cmd("XGROUP");
        mark.arg("CREATECONSUMER").arg(QUEUE).arg(GROUP);
        let _: u64 = self.ask(mark.arg("hostler:epoch:0badcafe"))?;
        let script = "local streams = redis.call('XREADGROUP', 'GROUP', ARGV[4], 'hostler:parked', \
               'COUNT', ARGV[1], 'STREAMS', ARGV[2], '>') \
             for _, entry in ipairs(streams[1][2]) do redis.call('ZADD', KEYS[1], ARGV[3], entry[1]) end";
        self.fill(
            script,
            &format!("{{{QUEUE}}}:parked:{GROUP}"),
            messages,
            QUEUE,
        )
    }

    fn fill(&mut self, script: &str, key: &str, messages: u64, text: &str) -> Outcome<()> {
        for count in chunks(messages) {
            let mut eval = cmd("EVAL");
            eval.arg(script).arg(1).arg(key).arg(count);
            let _: Value = self.ask(eval.arg(text).arg(NEVER_MS).arg(GROUP))?;
        }
        Ok(())
    }

    /// How many clients wait in a blocking command: each that waits for a message does.
    pub fn waiting(&mut self) -> Outcome<f64> {
        self.info("clients", "blocked_clients")
    }

    /// Wait until these consumers wait for a message.
    pub fn wait_for(&mut self, consumers: &mut [Process]) -> Outcome<()> {
        let began = Instant::now();
        while self.waiting()? < consumers.len() as f64 {
            for consumer in &mut *consumers {
                consumer.check()?;
            }
            if began.elapsed() > Duration::from_secs(60) {
                return fail("a consumer does not start to wait for messages");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A number of `INFO`.
    pub fn info(&mut self, section: &str, name: &str) -> Outcome<f64> {
        let text: String = self.ask(cmd("INFO").arg(section))?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines
            .filter(|(found, _)| *found == name)
            .map(|(_, value)| value)
            .next();
        Ok(value.ok_or("no such line of INFO")?.trim().parse()?)
    }

    /// What is left of the stream: unread and pending messages.
    pub fn left_of_stream(&mut self) -> Outcome<(u64, u64)> {
        let mut info = cmd("XINFO");
        let groups: Vec<std::collections::HashMap<String, Value>> =
            self.ask(info.arg("GROUPS").arg(QUEUE))?;
        let group = groups.into_iter().next().ok_or("no group")?;
        let number = |name: &str| match group.get(name) {
            Some(Value::Int(number)) => Ok(*number as u64),
            other => Err(format!("XINFO GROUPS: {name} is {other:?}")),
        };
        Ok((number("lag")?, number("pending")?))
    }

    /// What is left of the list: waiting values, and those that a consumer is processing.
    pub fn left_of_list(&mut self) -> Outcome<(u64, u64)> {
        let waiting: u64 = self.ask(cmd("LLEN").arg(QUEUE))?;
        if waiting > 0 {
            // The keys of the consumers are looked for only when there is no other work left.
            return Ok((waiting, 0));
        }
        let lists: Vec<String> = self.ask(cmd("KEYS").arg("*processing*"))?;
        let mut processed = 0;
        for list in lists {
            processed += self.ask::<u64>(cmd("LLEN").arg(list))?;
        }
        Ok((0, processed))
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn chunks(messages: u64) -> impl Iterator<Item = u64> {
    (0..messages.div_ceil(WRITTEN)).map(move |chunk| WRITTEN.min(messages - chunk * WRITTEN))
}
