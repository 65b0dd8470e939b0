//! Functions around those that the module imports, and around those that the host calls.

use wasm_encoder_of_wit::{BlockType, Function, InstructionSink, MemArg, ValType};
use wasmparser::FuncType;
use wasmparser::component_types::ResourceId;

use super::layout::Owned;
use super::plan::{Import, Role};
use super::runtime::Added;
use super::{Options, Refused};

/// The numbers of the functions that wrappers call, in the module that has the wrappers. The guest's memory has
/// the number 0.
#[derive(Clone, Copy)]
pub(super) struct Hooks<'d> {
    pub(super) options: Options,
    pub(super) mark: u32,
    pub(super) made: u32,
    pub(super) dropped: u32,
    pub(super) spoil: u32,
    /// The resources whose handles can be dropped, in the order of their numbers.
    pub(super) drops: &'d [ResourceId],
}

impl Hooks<'_> {
    /// The function around an import that writes its result to memory, or that makes or takes handles.
    pub(super) fn import(
        &self,
        ty: &FuncType,
        function: u32,
        import: &Import,
    ) -> Result<Option<Function>, Refused> {
        let parameters = u32::try_from(ty.params().len()).map_err(|_| Refused::Missing)?;
        let handles = self.options.resets && self.options.marks("handles");
        let mut body = Function::new([(1, ValType::I32)]);
        let mut sink = body.instructions();
        let arguments = |sink: &mut InstructionSink<'_>| {
            for parameter in 0..parameters {
                sink.local_get(parameter);
            }
        };
        match import {
            Import::Guest => return Ok(None),
            Import::Drop(resource) => {
                if !handles {
                    return Ok(None);
                }
                match self.number(*resource) {
                    Some(number) => sink.i32_const(number).local_get(0).call(self.dropped),
                    None => sink.call(self.spoil),
                };
                arguments(&mut sink);
                sink.call(function).end();
            }
            Import::Call {
                result,
                owned,
                gives,
            } => {
                // The place of the result is the last parameter.
                let place = result
                    .filter(|_| ty.results().is_empty())
                    .map(|size| (parameters.saturating_sub(1), size));
                let owned: &[Owned] = if handles { owned } else { &[] };
                let gives = handles && *gives;
                if place.is_none() && owned.is_empty() && !gives {
                    return Ok(None);
                }
                if gives {
                    sink.call(self.spoil);
                }
                if let Some((place, size)) = place
                    && self.options.marks("result")
                {
                    sink.local_get(place)
                        .i32_const(size.cast_signed())
                        .call(self.mark);
                }
                arguments(&mut sink);
                sink.call(function);
                match (place, owned) {
                    (Some((place, _)), owned) => {
                        for owned in owned {
                            self.find(&mut sink, place, owned);
                        }
                    }
                    (None, [Owned::At(0, resource)]) => {
                        sink.local_set(parameters);
                        self.new_handle(&mut sink, *resource, |sink| {
                            sink.local_get(parameters);
                        });
                        sink.local_get(parameters);
                    }
                    (None, []) => {}
                    (None, _) => {
                        sink.call(self.spoil);
                    }
                }
                sink.end();
            }
        }
        Ok(Some(body))
    }

    fn number(&self, resource: ResourceId) -> Option<i32> {
        let place = self.drops.iter().position(|known| *known == resource)?;
        i32::try_from(place).ok()
    }

    /// A new handle, which `handle` pushes. One that cannot be dropped ends the instance.
    fn new_handle(
        &self,
        sink: &mut InstructionSink<'_>,
        resource: ResourceId,
        handle: impl FnOnce(&mut InstructionSink<'_>),
    ) {
        match self.number(resource) {
            Some(number) => {
                sink.i32_const(number);
                handle(sink);
                sink.call(self.made);
            }
            None => {
                sink.call(self.spoil);
            }
        }
    }

    /// Find the handles of a result in memory.
    fn find(&self, sink: &mut InstructionSink<'_>, place: u32, owned: &Owned) {
        let at = |offset: u32| MemArg {
            offset: u64::from(offset),
            align: 0,
            memory_index: 0,
        };
        match owned {
            Owned::At(offset, resource) => self.new_handle(sink, *resource, |sink| {
                sink.local_get(place).i32_load(at(*offset));
            }),
            Owned::Case {
                place: offset,
                size,
                case,
                inside,
            } => {
                sink.local_get(place);
                match size {
                    1 => sink.i32_load8_u(at(*offset)),
                    2 => sink.i32_load16_u(at(*offset)),
                    _ => sink.i32_load(at(*offset)),
                };
                sink.i32_const(case.cast_signed())
                    .i32_eq()
                    .if_(BlockType::Empty);
                for owned in inside {
                    self.find(sink, place, owned);
                }
                sink.end();
            }
            Owned::List(offset) => {
                sink.local_get(place)
                    .i32_load(at(*offset + 4))
                    .if_(BlockType::Empty)
                    .call(self.spoil)
                    .end();
            }
            Owned::Somewhere => {
                sink.call(self.spoil);
            }
        }
    }
}

/// The function around one that the host calls.
pub(super) fn export(
    ty: &FuncType,
    added: &Added,
    options: Options,
    inner: u32,
    role: Role,
) -> Function {
    let parameters = u32::try_from(ty.params().len()).unwrap_or(u32::MAX);
    let mut body = Function::new([(1, ValType::I32)]);
    let mut sink = body.instructions();
    if options.resets && matches!(role, Role::Call { .. }) {
        sink.global_get(added.sealed)
            .i32_eqz()
            .if_(BlockType::Empty)
            .unreachable()
            .end();
    }
    for parameter in 0..parameters {
        sink.local_get(parameter);
    }
    sink.call(inner);
    match role {
        // `(old, old size, alignment, new size)`: the host writes what it asks for.
        Role::Allocate => {
            if options.marks("realloc") {
                sink.local_tee(parameters)
                    .local_get(parameters.saturating_sub(1))
                    .call(added.mark)
                    .local_get(parameters);
            }
        }
        Role::Call { ends } => {
            if options.resets {
                sink.call(added.release);
                if ends {
                    sink.call(added.reset);
                }
            }
        }
        Role::After => {
            if options.resets {
                sink.call(added.reset);
            }
        }
    }
    sink.end();
    body
}
