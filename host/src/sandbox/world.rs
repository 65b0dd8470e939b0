//! The WIT types of a handler, and the search for the handler's function in a component.

use std::borrow::Cow;
use std::time::Duration;

use rustc_hash::FxHashSet;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Instance, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Engine, Store};

use super::error::{LoadError, display_name};
use super::host::Host;
use super::log::lossy;
use super::program;
use crate::delivery::message::Message;
use crate::delivery::outcome::Outcome;
use crate::delivery::text::{printable, truncate_utf8};

/// The handler interfaces. A component exports exactly one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum World {
    /// `handle`: one message per call.
    Message,
    /// `handle-batch`: several messages per call.
    Batch,
    /// `run`: a program, one message per run.
    Program,
}

impl World {
    const ALL: [Self; 3] = [Self::Message, Self::Batch, Self::Program];

    const fn interface(self) -> &'static str {
        match self {
            Self::Message => "hostler:handler/message-handler",
            Self::Batch => "hostler:handler/batch-handler",
            Self::Program => "wasi:cli/run",
        }
    }

    const fn function(self) -> &'static str {
        match self {
            Self::Message => "handle",
            Self::Batch => "handle-batch",
            Self::Program => "run",
        }
    }

    /// The beginning of the versions that this host serves.
    const fn version(self) -> &'static str {
        match self {
            Self::Message | Self::Batch => "1.",
            Self::Program => "0.2.",
        }
    }

    /// Whether this host serves the version of an interface of this world.
    fn serves(self, name: &str) -> bool {
        let version = name[self.interface().len()..].strip_prefix('@');
        version.is_some_and(|version| version.starts_with(self.version()))
    }

    /// The world of an interface name. The version is ignored.
    fn of(name: &str) -> Option<Self> {
        let (interface, _) = name.split_once('@').unwrap_or((name, ""));
        Self::ALL
            .into_iter()
            .find(|world| world.interface() == interface)
    }
}

/// `types.message`, borrowed from the host's message.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct MessageParam<'a> {
    id: &'a str,
    queue: &'a str,
    body: &'a [u8],
    headers: &'a [(&'a str, &'a str)],
    attempt: u32,
    #[component(name = "max-attempts")]
    max_attempts: u32,
    #[component(name = "enqueued-ms")]
    enqueued_ms: u64,
}

/// `types.outcome`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum Answer {
    #[component(name = "ack")]
    Ack,
    #[component(name = "nack-requeue")]
    NackRequeue(Option<u64>),
    #[component(name = "drop")]
    Drop(Option<String>),
}

type One = TypedFunc<(&'static MessageParam<'static>,), (Answer,)>;
type Batch = TypedFunc<(&'static [MessageParam<'static>],), (Vec<Answer>,)>;
type Run = TypedFunc<(), (Result<(), ()>,)>;

/// A handler's function. Its parameters are covariant: a function with `'static` parameters also
/// takes borrowed ones.
#[derive(Clone, Copy)]
pub(super) enum Handle {
    /// `message-handler.handle`.
    One(One),
    /// `batch-handler.handle-batch`.
    Batch(Batch),
    /// `run.run`.
    Program(Run),
}

impl Handle {
    /// Call the function. A handler of single messages gets the first one. A batch handler may return a
    /// wrong number of answers.
    pub(super) async fn call(
        self,
        store: &mut Store<Host>,
        messages: &[MessageParam<'_>],
    ) -> wasmtime::Result<Vec<Answer>> {
        match self {
            Self::One(handle) => {
                let message = messages.first().expect("a call has a message");
                let (answer,) = handle.call_async(store, (message,)).await?;
                Ok(vec![answer])
            }
            Self::Batch(handle) => {
                let (answers,) = handle.call_async(store, (messages,)).await?;
                Ok(answers)
            }
            Self::Program(run) => {
                let ended = run.call_async(&mut *store, ()).await;
                let ended = ended.map(|(result,)| result);
                Ok(vec![program::answer(store.as_context_mut(), ended)?])
            }
        }
    }
}

/// The headers for the guest: names in lower case, UTF-8 (lossy), the first value of a repeated name.
/// Borrowed where nothing changes.
pub(super) struct Headers<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Up to this number of headers, a linear search is cheaper than a set.
const FEW: usize = 16;

impl<'a> Headers<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        let mut headers: Vec<(Cow<'a, str>, Cow<'a, str>)> =
            Vec::with_capacity(message.headers.len());
        let mut seen = FxHashSet::default();
        for (name, value) in message.headers.iter() {
            let mut name = lossy(name);
            if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                name.to_mut().make_ascii_lowercase();
            }
            let repeated = if message.headers.len() <= FEW {
                headers.iter().any(|(earlier, _)| *earlier == name)
            } else {
                !seen.insert(name.clone())
            };
            if !repeated {
                headers.push((name, lossy(value)));
            }
        }
        Self(headers)
    }

    pub(super) fn borrowed(&self) -> Vec<(&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect()
    }
}

impl<'a> MessageParam<'a> {
    pub(super) fn new(
        message: &'a Message,
        headers: &'a [(&'a str, &'a str)],
        attempt: u32,
        max_attempts: u32,
    ) -> Self {
        Self {
            id: &message.id,
            queue: &message.queue,
            body: &message.body,
            headers,
            attempt,
            max_attempts,
            enqueued_ms: message.enqueued_ms,
        }
    }
}

impl Answer {
    /// The outcome. Its text is cut to `text_max` bytes and escaped, because logs and terminals show
    /// it.
    pub(super) fn into_outcome(self, text_max: usize) -> Outcome {
        match self {
            Self::Ack => Outcome::Ack,
            Self::NackRequeue(delay) => Outcome::NackRequeue(delay.map(Duration::from_millis)),
            Self::Drop(reason) => Outcome::Drop(reason.map(|mut reason| {
                truncate_utf8(&mut reason, text_max);
                let mut reason = printable(&reason);
                truncate_utf8(&mut reason, text_max);
                reason.shrink_to_fit();
                reason
            })),
        }
    }
}

/// The handler's function in a component.
#[derive(Clone, Debug)]
pub(super) struct Export {
    /// The full name of the interface.
    pub(super) interface: String,
    pub(super) world: World,
    index: ComponentExportIndex,
}

/// Find the one handler that a component exports.
pub(super) fn probe(engine: &Engine, component: &Component) -> Result<Export, LoadError> {
    let ty = component.component_type();
    let exports: Vec<&str> = ty.exports(engine).map(|(name, _)| name).collect();
    let mut handlers: Vec<(&str, World)> = exports
        .iter()
        .filter_map(|name| Some((*name, World::of(name)?)))
        .collect();
    // Some tool chains export `run` from every component.
    if handlers.iter().any(|(_, world)| *world != World::Program) {
        handlers.retain(|(_, world)| *world != World::Program);
    }
    let found = |names: &[&str]| names.iter().map(|name| display_name(name)).collect();
    match *handlers {
        [] => Err(LoadError::NoHandler {
            found: found(&exports),
        }),
        [(name, world)] if world.serves(name) => export(engine, component, name, world),
        [(name, _)] => Err(LoadError::OtherVersion {
            found: found(&[name]),
        }),
        ref several => Err(LoadError::Ambiguous {
            found: several.iter().map(|(name, _)| display_name(name)).collect(),
        }),
    }
}

fn export(
    engine: &Engine,
    component: &Component,
    interface: &str,
    world: World,
) -> Result<Export, LoadError> {
    let function = world.function();
    let wrong = |detail: &str| LoadError::WrongType {
        export: format!("{}#{function}", display_name(interface)),
        detail: detail.to_owned(),
    };
    let (item, instance) = component
        .get_export(None, interface)
        .ok_or_else(|| wrong("the export is missing"))?;
    let ComponentItem::ComponentInstance(instance_type) = item else {
        return Err(wrong("the export is not an interface"));
    };
    match instance_type.get_export(engine, function).map(|e| e.ty) {
        Some(ComponentItem::ComponentFunc(_)) => {}
        Some(_) => return Err(wrong("the export is not a function")),
        None => return Err(wrong("the interface lacks the function")),
    }
    let index = component
        .get_export_index(Some(&instance), function)
        .ok_or_else(|| wrong("the interface lacks the function"))?;
    Ok(Export {
        interface: display_name(interface),
        world,
        index,
    })
}

impl Export {
    /// The handler's function in an instance.
    ///
    /// # Errors
    /// The function has another type than the WIT's.
    pub(super) fn function(
        &self,
        store: impl AsContextMut,
        instance: &Instance,
    ) -> wasmtime::Result<Handle> {
        Ok(match self.world {
            World::Message => Handle::One(instance.get_typed_func(store, self.index)?),
            World::Batch => Handle::Batch(instance.get_typed_func(store, self.index)?),
            World::Program => Handle::Program(instance.get_typed_func(store, self.index)?),
        })
    }

    /// The full name, for people.
    pub(super) fn name(&self) -> String {
        format!("{}#{}", self.interface, self.world.function())
    }
}
