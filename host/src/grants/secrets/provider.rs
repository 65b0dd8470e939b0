//! Secrets that a guest may read: their provider, and what one attempt may ask of it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::grants::context::{Context, NO_MESSAGE, Origin};
use crate::grants::recorded;
use crate::redis::target::Secret;

/// Has the secrets.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// The problems of what the grant names, for the operator. Reads files.
    fn check(&self) -> Vec<String>;

    /// Whether guests may read one.
    fn exposes(&self) -> bool;

    /// The value of a secret that the guest may read. The error is for the guest.
    async fn secret(&self, origin: &Origin, name: &str) -> Result<String, String>;

    /// All that can be read, by name: they stay out of recordings.
    async fn all(&self) -> Vec<(String, Secret)>;
}

/// The secrets of one attempt.
pub(crate) struct Exposed {
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
}

impl Exposed {
    pub(in crate::grants) fn new(
        context: &Arc<Context>,
        provider: &Arc<dyn Provider>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            provider: Arc::clone(provider),
        })
    }

    /// The value of this secret. The error is for the guest.
    pub(crate) async fn get(&self, name: &str) -> Result<String, String> {
        if self.context.is_trial() {
            return Err(NO_MESSAGE.to_owned());
        }
        let context = &self.context;
        let Some(track) = &context.track else {
            return self.provider.secret(&context.origin, name).await;
        };
        // Its name is recorded, and that there was an answer.
        let mut value = String::new();
        let live = async {
            value = self.provider.secret(&context.origin, name).await?;
            Ok::<_, String>(())
        };
        context
            .answer(|| recorded::ask("secret", name), live)
            .await?;
        Ok(track.secret(name, value))
    }
}
