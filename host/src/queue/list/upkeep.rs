//! What an instance needs beside its deliveries: joining, leaving, what waits.

use redis::Cmd;

use super::ListQueue;
use crate::queue::{Backlog, Maintenance};
use crate::redis::connection::PROBE_DEADLINE;
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::unless_forbidden;

/// For how long an instance must not have been seen before it is forgotten.
const INSTANCE_IDLE_MS: u64 = 60 * 60 * 1000;
/// Most instances forgotten in one go.
const INSTANCES_MAX: usize = 100;

impl ListQueue {
    /// Make this instance known.
    pub(super) async fn join(&self) -> Result<(), Error> {
        let script = Script::ListHold;
        let keys = &self.keys;
        let mut call = self.call(script, &[&keys.processing, &keys.started, &keys.instances]);
        call.arg(&self.instance).arg(self.recovery_ttl());
        script::run(&self.commands, script, &call).await.map(drop)
    }

    pub(super) async fn keep_house(&self) -> Result<Maintenance, Error> {
        let mut done = self.counts.take();
        let kept = self.keep_house_into(&mut done).await;
        kept.inspect_err(|_| self.counts.give_back(&done))?;
        Ok(done)
    }

    async fn keep_house_into(&self, done: &mut Maintenance) -> Result<(), Error> {
        self.values.time.read(&self.commands).await?;
        self.shorten(done).await?;
        done.consumers_removed = self.forget(INSTANCE_IDLE_MS, "").await?;
        Ok(())
    }

    pub(super) async fn look_whether_it_works(&self) -> Result<(), Error> {
        const COMMAND: &str = "ZREM";
        let mut cmd = Cmd::new();
        // No instance has this name: it removes nothing. But it is a write, which a replica, a
        // server that cannot save, or one without its replicas refuses.
        cmd.arg(COMMAND).arg(&self.keys.instances).arg("");
        let looking = async {
            let written = self.commands.call(COMMAND, &cmd).await.map(drop);
            unless_forbidden(written)?;
            unless_forbidden(self.look_at_backlog().await.map(drop))
        };
        self.commands.within(COMMAND, PROBE_DEADLINE, looking).await
    }

    pub(super) async fn look_at_backlog(&self) -> Result<Backlog, Error> {
        let script = Script::ListBacklog;
        let keys = &self.keys;
        let mut call = script.on(&[self.key(), &keys.retry, &keys.delayed, &keys.instances]);
        call.arg(&keys.processing_prefix);
        let reply = script::run(&self.commands, script, &call).await?;
        let [waiting, delayed, held] = reply::tuple(script.name(), reply)?;
        let count = |value| reply::count(script.name(), value);
        Ok(Backlog {
            unread: count(&waiting)? > 0,
            pending: count(&delayed)? + count(&held)?,
        })
    }

    pub(super) async fn forget_self(&self) -> Result<(), Error> {
        self.forget(0, &self.instance).await.map(|_| ())
    }

    async fn forget(&self, idle_ms: u64, only: &str) -> Result<u64, Error> {
        let script = Script::ListForget;
        let keys = &self.keys;
        let mut call = script.on(&[&keys.instances]);
        call.arg(idle_ms)
            .arg(INSTANCES_MAX)
            .arg(&keys.processing_prefix)
            .arg(&keys.started_prefix)
            .arg(only);
        let reply = script::run(&self.commands, script, &call).await?;
        reply::count(script.name(), &reply)
    }
}
