//! The WIT types of a handler, and the search for the handler's function in a component.

use std::sync::atomic::{AtomicBool, Ordering};

use hostler_components::{describe, display_name};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, ComponentType, Instance, Lift, Lower,
    TypedFunc,
};
use wasmtime::{AsContextMut, Engine, Store};

use super::error::LoadError;
use super::host::Host;
use super::log::Level;
use super::worlds::{Answer, run, spin, sqs, wasmcloud};
use crate::delivery::message::Message;

/// What a handler takes in one call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum World {
    /// One message per call: `handle`, all handlers of other hosts, and programs.
    Message,
    /// Several messages per call: `handle-batch`.
    Batch,
}

/// The handler interfaces. A component exports exactly one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Interface {
    Message,
    Batch,
    Spin,
    Sqs,
    Wasmcloud,
    Run,
}

/// What is known of an interface.
struct Facts {
    /// The name without the version. That of `Sqs` is its world: the function is an export of its own.
    name: &'static str,
    /// The beginning of the version; empty = the name has no version.
    version: &'static str,
    function: &'static str,
    /// Whose WIT it is.
    host: &'static str,
}

impl Interface {
    const ALL: [Self; 6] = [
        Self::Message,
        Self::Batch,
        Self::Spin,
        Self::Sqs,
        Self::Wasmcloud,
        Self::Run,
    ];

    const fn facts(self) -> Facts {
        let (name, version, function, host) = match self {
            Self::Message => ("hostler:handler/message-handler", "1.", "handle", "hostler"),
            Self::Batch => (
                "hostler:handler/batch-handler",
                "1.",
                "handle-batch",
                "hostler",
            ),
            Self::Spin => ("fermyon:spin/inbound-redis", "", "handle-message", "Spin"),
            Self::Sqs => ("fermyon:spin-sqs", "2.", "handle-queue-message", "Spin"),
            Self::Wasmcloud => (
                "wasmcloud:messaging/handler",
                "0.2.",
                "handle-message",
                "wasmCloud",
            ),
            Self::Run => ("wasi:cli/run", "0.2.", "run", "WASI"),
        };
        Facts {
            name,
            version,
            function,
            host,
        }
    }

    const fn world(self) -> World {
        match self {
            Self::Batch => World::Batch,
            Self::Message | Self::Spin | Self::Sqs | Self::Wasmcloud | Self::Run => World::Message,
        }
    }

    /// The one of this name. The version is ignored.
    fn of(name: &str) -> Option<Self> {
        let (name, _) = split(name);
        Self::ALL
            .into_iter()
            .find(|known| known.facts().name == name)
    }

    /// The name with the version that is served.
    fn expected(self) -> String {
        let Facts { name, version, .. } = self.facts();
        match version.trim_end_matches('.') {
            "" => format!("{name} without a version"),
            version => format!("{name}@{version}"),
        }
    }

    /// Whether this name has a version that is served.
    fn serves(self, name: &str) -> bool {
        let (_, version) = split(name);
        match self.facts().version {
            "" => version.is_empty(),
            begin => version.starts_with(begin),
        }
    }
}

/// The name of an interface, and its version, which may be empty.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
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

type One = TypedFunc<(&'static MessageParam<'static>,), (Answer,)>;
type Batch = TypedFunc<(&'static [MessageParam<'static>],), (Vec<Answer>,)>;

/// A handler's function. Its parameters are covariant: a function with `'static` parameters also
/// takes borrowed ones.
#[derive(Clone, Copy)]
pub(super) enum Handle {
    /// `message-handler.handle`.
    One(One),
    /// `batch-handler.handle-batch`.
    Batch(Batch),
    /// `inbound-redis.handle-message` of Spin.
    Spin(spin::HandleMessage),
    /// `handle-queue-message` of Spin.
    Sqs(sqs::HandleQueueMessage),
    /// `handler.handle-message` of wasmCloud.
    Wasmcloud(wasmcloud::HandleMessage),
    /// `run.run` of a program.
    Run(run::Run),
}

impl Handle {
    /// Call the function. A handler of single messages gets the first one. A batch handler may return a
    /// wrong number of answers.
    pub(super) async fn call(
        self,
        store: &mut Store<Host>,
        messages: &[MessageParam<'_>],
    ) -> wasmtime::Result<Vec<Answer>> {
        let message = messages.first().expect("a call has a message");
        let MessageParam {
            id,
            queue,
            body,
            headers,
            ..
        } = *message;
        let done = match self {
            Self::One(handle) => {
                let (answer,) = handle.call_async(store, (message,)).await?;
                return Ok(vec![answer]);
            }
            Self::Batch(handle) => {
                let (answers,) = handle.call_async(store, (messages,)).await?;
                return Ok(answers);
            }
            // On the heap: their futures would make those of all handlers larger.
            Self::Spin(handle) => Box::pin(spin::call(handle, store, body)).await?,
            Self::Sqs(handle) => Box::pin(sqs::call(handle, store, id, body, headers)).await?,
            Self::Wasmcloud(handle) => {
                Box::pin(wasmcloud::call(handle, store, queue, body, headers)).await?
            }
            Self::Run(handle) => return Ok(vec![Box::pin(run::call(handle, store)).await?]),
        };
        Ok(vec![done.map_or_else(
            |error| again(store, error),
            |()| Answer::Ack,
        )])
    }
}

/// A handler of another host has failed, perhaps with a text: the message is wanted again, and the log has
/// the text.
fn again(store: &mut Store<Host>, error: Option<String>) -> Answer {
    if let Some(text) = error {
        store
            .data_mut()
            .log_event(Level::Warn, "the handler failed", &text);
    }
    Answer::NackRequeue(None)
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

/// The handler's function in a component.
#[derive(Debug)]
pub(crate) struct Export {
    /// The full name of the interface.
    pub(crate) name: String,
    interface: Interface,
    index: ComponentExportIndex,
    /// An instance had a function of the right type there. It is a type of the component, so all of them have.
    is_right: AtomicBool,
}

/// Find the one handler that a component exports.
pub(crate) fn probe(engine: &Engine, component: &Component) -> Result<Export, LoadError> {
    let ty = component.component_type();
    let exports: Vec<&str> = ty.exports(engine).map(|(name, _)| name).collect();
    let mut handlers: Vec<(String, Interface)> = exports
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), Interface::of(name)?)))
        .collect();
    // The function alone has no package: the types that it takes have one.
    if exports.contains(&Interface::Sqs.facts().function) {
        let imports = ty.imports(engine).map(|(name, _)| name);
        let version = imports
            .filter_map(|name| name.strip_prefix(SQS_TYPES))
            .next();
        let name = version.map(|version| format!("{}@{version}", Interface::Sqs.facts().name));
        handlers.extend(name.map(|name| (name, Interface::Sqs)));
    }
    // Some tool chains export `run` from every component.
    if handlers.iter().any(|(_, kind)| *kind != Interface::Run) {
        handlers.retain(|(_, kind)| *kind != Interface::Run);
    }
    match &*handlers {
        [] => Err(LoadError::NoHandler(
            exports.into_iter().map(display_name).collect(),
        )),
        [(name, interface)] if interface.serves(name) => {
            export(engine, component, name, *interface)
        }
        [(name, interface)] => Err(LoadError::OtherVersion {
            found: display_name(name),
            expected: interface.expected(),
        }),
        several => Err(LoadError::Ambiguous(
            several.iter().map(|(name, _)| display_name(name)).collect(),
        )),
    }
}

/// What a component for `fermyon:spin-sqs` imports, without the version.
const SQS_TYPES: &str = "fermyon:spin-sqs/sqs-types@";

fn export(
    engine: &Engine,
    component: &Component,
    name: &str,
    interface: Interface,
) -> Result<Export, LoadError> {
    let Facts { function, host, .. } = interface.facts();
    let wrong = |detail: &str| LoadError::WrongType {
        export: format!("{}#{function}", display_name(name)),
        detail: detail.to_owned(),
        host,
    };
    let (owner, found) = if interface == Interface::Sqs {
        let found = component.get_export(None, function);
        (None, found.map(|(item, _)| item))
    } else {
        let (item, owner) = component
            .get_export(None, name)
            .ok_or_else(|| wrong("the export is missing"))?;
        let ComponentItem::ComponentInstance(owner_type) = item else {
            return Err(wrong("the export is not an interface"));
        };
        let found = owner_type.get_export(engine, function);
        (Some(owner), found.map(|export| export.ty))
    };
    match found {
        Some(ComponentItem::ComponentFunc(_)) => {}
        Some(_) => return Err(wrong("the export is not a function")),
        None => return Err(wrong("the interface lacks the function")),
    }
    let index = component
        .get_export_index(owner.as_ref(), function)
        .ok_or_else(|| wrong("the interface lacks the function"))?;
    Ok(Export {
        name: display_name(name),
        interface,
        index,
        is_right: AtomicBool::new(false),
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
        Ok(match self.interface {
            Interface::Message => Handle::One(self.typed(store, instance)?),
            Interface::Batch => Handle::Batch(self.typed(store, instance)?),
            Interface::Spin => Handle::Spin(self.typed(store, instance)?),
            Interface::Sqs => Handle::Sqs(self.typed(store, instance)?),
            Interface::Wasmcloud => Handle::Wasmcloud(self.typed(store, instance)?),
            Interface::Run => Handle::Run(self.typed(store, instance)?),
        })
    }

    /// The type is checked in the first instance: for each instance it would be a part of a short call that can be
    /// measured.
    #[expect(
        unsafe_code,
        reason = "only here wasmtime learns that the type was checked"
    )]
    fn typed<P, R>(
        &self,
        mut store: impl AsContextMut,
        instance: &Instance,
    ) -> wasmtime::Result<TypedFunc<P, R>>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        if self.is_right.load(Ordering::Relaxed) {
            let function = instance.get_func(&mut store, self.index);
            let function = function.ok_or_else(|| wasmtime::format_err!("it is missing"))?;
            // SAFETY: the index is of one component, and finds nothing in an instance of another one. `function` asks
            // for one type, that of `interface`, which does not change. An instance of this component had a function of
            // that type there, and the type of an export is a part of the component.
            return Ok(unsafe { TypedFunc::new_unchecked(function) });
        }
        let function = instance.get_typed_func(store, self.index)?;
        self.is_right.store(true, Ordering::Relaxed);
        Ok(function)
    }

    pub(crate) fn is_program(&self) -> bool {
        self.interface == Interface::Run
    }

    pub(crate) fn world(&self) -> World {
        self.interface.world()
    }

    /// Whether the function has the type of the WIT, in this instance.
    ///
    /// # Errors
    /// It has another type.
    pub(crate) fn check_type(
        &self,
        store: impl AsContextMut,
        instance: &Instance,
    ) -> Result<(), LoadError> {
        let function = self.function(store, instance);
        let wrong_type = |error| self.wrong_type(describe(&error));
        function.map(drop).map_err(wrong_type)
    }

    /// The refusal of a function of another type.
    fn wrong_type(&self, detail: String) -> LoadError {
        let Facts { function, host, .. } = self.interface.facts();
        LoadError::WrongType {
            export: format!("{}#{function}", self.name),
            detail,
            host,
        }
    }
}
