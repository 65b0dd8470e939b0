//! Reads a component, and decides whether it can be reset.

use std::collections::HashMap;

use wasmparser::component_types::{ComponentAnyTypeId, ComponentValType, ResourceId};
use wasmparser::types::{Types, TypesRef};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ExternalKind, Instance, InstantiationArg,
    Parser, Payload, PrimitiveValType, Validator, WasmFeatures,
};

use super::Refused;
use super::layout::{Owned, Reader};
use crate::sandbox::compile::parts;

/// What a function that the core module imports does.
#[derive(Clone, Debug)]
pub(super) enum Import {
    /// A call of the host.
    Call {
        /// Bytes of the result, if it is one.
        result: Option<u32>,
        owned: Vec<Owned>,
        /// Whether the guest gives a handle away.
        gives: bool,
    },
    /// Drops a handle.
    Drop(ResourceId),
    /// A function of another core module.
    Guest,
}

/// What an export of the core module is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Allocates what the host writes.
    Allocate,
    /// A function that the host calls. `ends` = the call ends with it: no other function follows.
    Call { ends: bool },
    /// The function that follows when the host has read the result.
    After,
}

/// What is known of a component.
pub(super) struct Plan<'a> {
    /// The module that has the memory, and the number of its instance.
    pub(super) main: Member<'a>,
    /// Those that only fill its table.
    pub(super) others: Vec<Member<'a>>,
    pub(super) exports: HashMap<&'a str, Role>,
    pub(super) types: Types,
}

/// A core module and its instance.
pub(super) struct Member<'a> {
    /// Its number.
    pub(super) module: u32,
    pub(super) bytes: &'a [u8],
    /// The number of its instance.
    pub(super) instance: u32,
    /// The functions that it imports.
    pub(super) imports: HashMap<(&'a str, &'a str), Import>,
}

/// Where a core function comes from.
#[derive(Clone, Debug)]
enum Origin<'a> {
    Canonical(Import),
    Export { instance: u32, name: &'a str },
}

#[derive(Default)]
struct Found<'a> {
    modules: Vec<&'a [u8]>,
    instances: Vec<Instance<'a>>,
    functions: Vec<Origin<'a>>,
    lifts: Vec<(u32, Box<[CanonicalOption]>, u32)>,
    /// The functions that allocate results of imports.
    allocators: Vec<u32>,
}

impl<'a> Plan<'a> {
    pub(super) fn of(component: &'a [u8]) -> Result<Self, Refused> {
        let mut validator = Validator::new_with_features(WasmFeatures::all());
        let types = validator.validate_all(component)?;
        let mut found = Found::default();
        for part in parts(component) {
            found.add(component, part?, types.as_ref())?;
        }
        if modules_in(component)? != found.modules.len() {
            return Err(Refused::has("an inner component with a core module"));
        }
        let (mut main, mut others) = (None, Vec::new());
        for (number, instance) in (0..).zip(&found.instances) {
            let Instance::Instantiate { module_index, args } = instance else {
                continue;
            };
            let member = found.member(number, *module_index, args)?;
            let same = |other: &Member<'_>| other.module == *module_index;
            if others.iter().any(same) || main.as_ref().is_some_and(same) {
                return Err(Refused::has("two instances of a core module"));
            }
            if !has_memory(member.bytes)? {
                others.push(member);
            } else if main.replace(member).is_some() {
                return Err(Refused::has("two core modules with memories"));
            }
        }
        let main = main.ok_or_else(|| Refused::has("no memory"))?;
        let exports = found.roles(types.as_ref(), main.instance)?;
        Ok(Self {
            main,
            others,
            exports,
            types,
        })
    }
}

impl<'a> Found<'a> {
    fn member(
        &self,
        instance: u32,
        module: u32,
        args: &[InstantiationArg<'a>],
    ) -> Result<Member<'a>, Refused> {
        let mut imports = HashMap::new();
        for arg in args {
            let Some(Instance::FromExports(list)) = self.instances.get(arg.index as usize) else {
                return Err(Refused::has("a core instance that imports another one"));
            };
            for export in list {
                if export.kind == ExternalKind::Func {
                    let import = match self.functions.get(export.index as usize) {
                        Some(Origin::Canonical(import)) => import.clone(),
                        Some(Origin::Export { .. }) => Import::Guest,
                        None => return Err(Refused::Missing),
                    };
                    imports.insert((arg.name, export.name), import);
                }
            }
        }
        let bytes = self.modules.get(module as usize);
        Ok(Member {
            module,
            bytes: bytes.ok_or(Refused::Missing)?,
            instance,
            imports,
        })
    }

    fn add(
        &mut self,
        component: &'a [u8],
        payload: Payload<'a>,
        types: TypesRef<'_>,
    ) -> Result<(), Refused> {
        match payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                let module = component.get(unchecked_range);
                self.modules.push(module.ok_or(Refused::Missing)?);
            }
            Payload::InstanceSection(instances) => {
                for instance in instances {
                    self.instances.push(instance?);
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    if let ComponentAlias::CoreInstanceExport {
                        kind: ExternalKind::Func,
                        instance_index: instance,
                        name,
                    } = alias?
                    {
                        self.functions.push(Origin::Export { instance, name });
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    self.canonical(function?, types)?;
                }
            }
            Payload::ComponentStartSection { .. } => {
                return Err(Refused::has("a start function of the component"));
            }
            _ => {}
        }
        Ok(())
    }

    fn canonical(
        &mut self,
        function: CanonicalFunction,
        types: TypesRef<'_>,
    ) -> Result<(), Refused> {
        let import = match function {
            CanonicalFunction::Lift {
                core_func_index,
                type_index,
                options,
            } => {
                plain(&options)?;
                self.lifts.push((core_func_index, options, type_index));
                return Ok(());
            }
            CanonicalFunction::Lower {
                func_index,
                options,
            } => {
                plain(&options)?;
                self.allocators.extend(allocator(&options));
                lowered(types, func_index)?
            }
            CanonicalFunction::ResourceDrop { resource } => {
                match types.component_any_type_at(resource) {
                    ComponentAnyTypeId::Resource(id) => Import::Drop(id.resource()),
                    _ => return Err(Refused::Missing),
                }
            }
            other => {
                let shown = format!("{other:?}");
                let end = shown.find([' ', '{', '(']).unwrap_or(shown.len());
                return Err(Refused::has(format!("the built-in {}", &shown[..end])));
            }
        };
        self.functions.push(Origin::Canonical(import));
        Ok(())
    }

    /// What the exports of the core instance are for.
    fn roles(&self, types: TypesRef<'_>, instance: u32) -> Result<HashMap<&'a str, Role>, Refused> {
        let mut roles = HashMap::new();
        let mut add = |function: u32, role| match self.functions.get(function as usize) {
            Some(Origin::Export { instance: of, name }) if *of == instance => {
                match roles.insert(*name, role) {
                    Some(other) if other != role => {
                        Err(Refused::has("a core function with two purposes"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Err(Refused::has("a canonical function around an import")),
        };
        for (function, options, ty) in &self.lifts {
            let mut follows = false;
            for option in options {
                if let CanonicalOption::PostReturn(after) = option {
                    follows = true;
                    add(*after, Role::After)?;
                }
            }
            let ComponentAnyTypeId::Func(ty) = types.component_any_type_at(*ty) else {
                return Err(Refused::Missing);
            };
            let ty = &types[ty];
            let reader = Reader {
                types,
                with_borrowed: true,
            };
            for value in ty.params.iter().map(|(_, ty)| *ty).chain(ty.result) {
                if !reader.owned(value)?.is_empty() {
                    return Err(Refused::has("a function that takes or returns handles"));
                }
            }
            if !follows && !ty.result.is_none_or(is_scalar) {
                return Err(Refused::has(
                    "a result in memory, and no post-return function",
                ));
            }
            add(*function, Role::Call { ends: !follows })?;
        }
        let lowers = self.allocators.iter();
        let lifts = self
            .lifts
            .iter()
            .flat_map(|(_, options, _)| allocator(options));
        for function in lowers.copied().chain(lifts) {
            add(function, Role::Allocate)?;
        }
        Ok(roles)
    }
}

/// Whether a result is a core value, and nothing in memory.
fn is_scalar(ty: ComponentValType) -> bool {
    matches!(ty, ComponentValType::Primitive(primitive) if primitive != PrimitiveValType::String)
}

/// The function that allocates.
fn allocator(options: &[CanonicalOption]) -> Option<u32> {
    options.iter().find_map(|option| match option {
        CanonicalOption::Realloc(function) => Some(*function),
        _ => None,
    })
}

/// Refuse options other than those of synchronous functions and 32-bit memories.
fn plain(options: &[CanonicalOption]) -> Result<(), Refused> {
    let is_known = |option: &CanonicalOption| {
        matches!(
            option,
            CanonicalOption::UTF8
                | CanonicalOption::UTF16
                | CanonicalOption::CompactUTF16
                | CanonicalOption::Memory(_)
                | CanonicalOption::Realloc(_)
                | CanonicalOption::PostReturn(_)
        )
    };
    if options.iter().all(is_known) {
        return Ok(());
    }
    Err(Refused::has("a function that is not synchronous"))
}

/// What an imported function writes.
fn lowered(types: TypesRef<'_>, function: u32) -> Result<Import, Refused> {
    let ty = &types[types.component_function_at(function)];
    let reader = Reader {
        types,
        with_borrowed: false,
    };
    let mut gives = false;
    for (_, ty) in &ty.params {
        gives |= !reader.owned(*ty)?.is_empty();
    }
    let (mut result, mut owned) = (None, Vec::new());
    if let Some(ty) = ty.result {
        result = Some(reader.layout(ty)?.size);
        owned = reader.owned(ty)?;
    }
    Ok(Import::Call {
        result,
        owned,
        gives,
    })
}

/// Whether a core module defines a memory.
fn has_memory(module: &[u8]) -> Result<bool, Refused> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::MemorySection(_) = payload? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The core modules of a component and of its inner components.
fn modules_in(component: &[u8]) -> Result<usize, Refused> {
    let mut modules = 0;
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::ModuleSection { .. } = payload? {
            modules += 1;
        }
    }
    Ok(modules)
}
