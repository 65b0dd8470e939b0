//! Scripts as values. Redis runs them by digest; it may forget them at any time (`SCRIPT FLUSH`, a restart), and
//! each node of a cluster knows its own: then the connection loads those that it needs, and runs the call again.
//!
//! The room that calls a script declares it ([`crate::scripts`]). Its text is a file beside, which states its
//! KEYS, ARGV, reply and atomicity, behind parts that several scripts share. Rust never builds script text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use parking_lot::Mutex;
use redis::{Arg, Cmd, Pipeline};

/// Most messages in one call: a script blocks Redis.
pub const PER_CALL: usize = 100;

/// First part of a script that also runs when the server is out of memory.
pub const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";
/// First part of a script that does not begin on a server that would refuse its writes: Redis asks before the start,
/// also where the first command is not a write.
pub const ASKED: &str = "#!lua\n";
/// Part: the server's clock, and numbers as Redis reads them.
pub const TIME: &str = include_str!("lua/parts/time.lua");
/// Part: how many values to read next.
pub const STEP: &str = include_str!("lua/parts/step.lua");

/// A script.
pub struct Script {
    name: &'static str,
    parts: &'static [&'static str],
    room: fn() -> &'static [&'static Self],
    is_durable: bool,
    text: OnceLock<Text>,
}

struct Text {
    source: String,
    digest: String,
}

/// The scripts that this process has called, by their digests.
static CALLED: Mutex<BTreeMap<String, &'static Script>> = Mutex::new(BTreeMap::new());

/// Declare the scripts of a room: `NAME = [PARTS] "file" durable;` is the file `lua/<file>.lua` behind these parts.
/// `durable`: a replica confirms what it writes, where that is asked for.
#[macro_export]
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = [$($part:expr),*] $file:literal $($durable:ident)?;)*) => {
        $(
            $(#[$doc])*
            pub static $name: $crate::script::Script = $crate::script::Script::new(
                $file,
                &[$($part,)* include_str!(concat!("lua/", $file, ".lua"))],
                || ALL,
            )$(.$durable())?;
        )*

        /// Every script of this room.
        pub static ALL: &[&$crate::script::Script] = &[$(&$name,)*];
    };
}

impl Script {
    /// A script of this room.
    pub const fn new(
        name: &'static str,
        parts: &'static [&'static str],
        room: fn() -> &'static [&'static Self],
    ) -> Self {
        Self {
            name,
            parts,
            room,
            is_durable: false,
            text: OnceLock::new(),
        }
    }

    /// The same script; a replica confirms what it writes, where that is asked for.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    /// Its name in errors.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its text.
    pub fn source(&'static self) -> &'static str {
        &self.text().source
    }

    /// The SHA-1 of its text, by which it is called.
    pub fn digest(&'static self) -> &'static str {
        &self.text().digest
    }

    /// The call of this script with these keys; arguments follow.
    pub fn on(&'static self, keys: &[&str]) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("EVALSHA").arg(self.digest()).arg(keys.len());
        for key in keys {
            cmd.arg(*key);
        }
        cmd
    }

    /// The command that loads this script.
    pub fn load(&'static self) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(self.source());
        cmd
    }

    pub(super) fn is_durable(&self) -> bool {
        self.is_durable
    }

    fn text(&'static self) -> &'static Text {
        self.text.get_or_init(|| {
            let source = self.parts.concat();
            let digest = redis::Script::new(&source).get_hash().to_owned();
            CALLED.lock().insert(digest.clone(), self);
            Text { source, digest }
        })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The command that loads a script, for errors.
pub(super) const LOAD: &str = "SCRIPT LOAD";

/// The commands that load the scripts of these calls, and all others of their rooms, which are called soon.
pub(super) fn load_called<'a>(calls: impl Iterator<Item = &'a Cmd>) -> Pipeline {
    let called = CALLED.lock();
    let mut rooms = Vec::new();
    for call in calls {
        let digest = match call.args_iter().nth(1) {
            Some(Arg::Simple(digest)) => std::str::from_utf8(digest).ok(),
            _ => None,
        };
        let script = digest.and_then(|digest| called.get(digest));
        rooms.extend(script.map(|script| script.room));
    }
    drop(called);
    rooms.sort_unstable_by_key(|room| room().as_ptr());
    rooms.dedup_by_key(|room| room().as_ptr());
    let scripts: Vec<&Script> = rooms.into_iter().flat_map(|room| room()).copied().collect();
    load_all(&scripts)
}

pub(super) fn load_all(scripts: &[&'static Script]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for script in scripts {
        pipeline.add_command(script.load());
    }
    pipeline
}
