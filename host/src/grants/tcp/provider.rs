//! Names and addresses of sockets: their provider, and the lookups of one attempt.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::delivery::declared::declared;
use crate::delivery::recording::Track;
use crate::grants::context::{Context, Origin};
use crate::grants::recorded;
use crate::grants::steps;

declared! {
    /// Why a name has no address for the guest.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum LookupError (/// One word, for `error.type`.
                          label -> &'static str) {
        /// No rule names it, or no rule allows its addresses.
        Denied = "denied",
        /// DNS has no address for it.
        Unknown = "unknown",
        /// The time was over.
        Timeout = "timeout",
    }
}

impl LookupError {
    /// The one with this label.
    fn of(label: &str) -> Self {
        let known = Self::ALL.into_iter();
        let mut found = known.filter(|error| error.label() == label);
        found.next().unwrap_or(Self::Unknown)
    }
}

/// Answers names, and says which addresses a guest may connect to.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// The addresses to which a guest that asks for this name may connect.
    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError>;

    /// Whether a guest may connect to this address without a name.
    fn may_connect(&self, address: SocketAddr) -> bool;

    /// A guest wanted to connect to an address that it may not have.
    fn connection_denied(&self, origin: &Origin, address: SocketAddr);
}

/// The most addresses that an attempt may learn: names have a few each.
const ADDRESSES_MAX: usize = 1_000;

/// The lookups of one attempt.
pub(crate) struct Lookups {
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
    asked: AtomicU32,
    /// The addresses that names were answered with.
    addresses: Mutex<Vec<SocketAddr>>,
}

impl Lookups {
    pub(in crate::grants) fn new(
        context: &Arc<Context>,
        provider: &Arc<dyn Provider>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            provider: Arc::clone(provider),
            asked: AtomicU32::new(0),
            addresses: Mutex::default(),
        })
    }

    /// The attempt has ended: forget the addresses.
    pub(in crate::grants) fn end(&self) {
        self.addresses.lock().clear();
    }

    /// The addresses of a name. The guest may connect to them until its attempt ends. It counts from this call
    /// on, whenever the future runs.
    pub(crate) fn resolve(
        self: Arc<Self>,
        name: String,
    ) -> impl Future<Output = Result<Vec<IpAddr>, LookupError>> + Send + 'static {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        let is_denied = self.context.is_trial() || before >= self.context.requests_max;
        async move {
            match is_denied {
                true => Err(LookupError::Denied),
                false => self.look_up(&name).await,
            }
        }
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let context = &self.context;
        let ending = context.ending();
        let resolving = async {
            let found = self.provider.resolve(&context.origin, name).await;
            found.map_err(|error| error.label().to_owned())
        };
        let asked = || recorded::ask("lookup", name);
        let resolving = context.answer(asked, resolving);
        let recording = context.record(|| steps::of_lookup(name));
        let found = tokio::select! {
            biased;
            () = ending => Err(LookupError::Timeout),
            found = resolving => found.map_err(|label: String| LookupError::of(&label)),
        };
        if let Some(recording) = recording {
            let error = found.as_ref().err().copied();
            recording.end(error.map(LookupError::label));
        }
        let found = found?;
        let mut addresses = self.addresses.lock();
        let mut ips = Vec::new();
        for address in found {
            if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
                addresses.push(address);
            }
            if !ips.contains(&address.ip()) {
                ips.push(address.ip());
            }
        }
        Ok(ips)
    }

    /// Whether the guest may connect to this address.
    pub(crate) fn may_connect(&self, address: SocketAddr) -> bool {
        let is_known = self.addresses.lock().contains(&address);
        let live = || !self.context.is_trial() && (is_known || self.provider.may_connect(address));
        let asked = || recorded::ask("connect", &address.to_string());
        let allowed = match self.context.track.as_deref() {
            None => live(),
            Some(Track::Records(tape)) => {
                let now = Instant::now();
                let place = tape.begin(asked(), now);
                let allowed = live();
                // Nothing that a connection says is recorded: this call stays without an answer.
                if !allowed {
                    tape.answer(place, None, Ok::<_, ()>(allowed), now);
                }
                allowed
            }
            // None is opened.
            Some(Track::Plays(player)) => {
                player.next(&asked());
                false
            }
        };
        if !allowed {
            self.provider
                .connection_denied(&self.context.origin, address);
        }
        allowed
    }
}
