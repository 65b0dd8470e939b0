//! What the core modules of a component share, and which of them can be one.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind,
    Instance as CoreInstance, Payload,
};

use super::source::Source;
use super::{Apart, KINDS, Kind, kind_of, number};
use crate::sandbox::compile::parts;
use crate::sandbox::limiter::CORE_INSTANCES;

/// A part of a component. Numbers count the items of their kind, as in the component.
pub(super) enum Item<'a> {
    /// A section without core items.
    Section {
        id: u8,
        data: &'a [u8],
    },
    Component(&'a [u8]),
    /// The core module with this number.
    Module(u32),
    /// The core instance with this number.
    Instance(u32),
    /// An alias of an export of a core instance: the item of this kind with this number.
    CoreAlias(Kind, u32),
    Alias(ComponentAlias<'a>),
    /// A canonical function, and its number if it is a core function.
    Canonical(CanonicalFunction, Option<u32>),
}

/// Where a core item of a component comes from.
#[derive(Clone, Copy)]
enum Origin<'a> {
    Export {
        instance: u32,
        name: &'a str,
    },
    /// The item of this canonical function.
    Canonical(usize),
}

/// What a core item is, however often it was passed on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Definition<'a> {
    /// An item that a member defines, with its number in the module of the member.
    Member { instance: u32, index: u32 },
    /// An export of an instance that is not a member.
    Export { instance: u32, name: &'a str },
    /// The item of this canonical function.
    Canonical(usize),
}

/// The parts of a component.
#[derive(Default)]
pub(super) struct Graph<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) modules: Vec<&'a [u8]>,
    pub(super) instances: Vec<CoreInstance<'a>>,
    sources: Vec<OnceCell<Option<Source<'a>>>>,
    /// Of the instances that are lists of items: those items.
    lists: Vec<HashMap<&'a str, (Kind, u32)>>,
    /// The number of instances that are made of modules.
    made: u32,
    /// The items of the instances.
    places: Vec<usize>,
    origins: [Vec<Origin<'a>>; KINDS],
    /// In the order of their numbers.
    members: Vec<u32>,
    /// The other instances that depend on a member, and the items of canonical functions that do.
    dependent: HashSet<u32>,
    dependent_canonical: HashSet<usize>,
}

impl<'a> Graph<'a> {
    pub(super) fn of(component: &'a [u8]) -> Result<Self, Apart> {
        let mut graph = Self::default();
        for part in parts(component) {
            graph.add(component, part?)?;
        }
        graph.choose_members()?;
        Ok(graph)
    }

    fn add(&mut self, component: &'a [u8], payload: Payload<'a>) -> Result<(), Apart> {
        match payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                self.items.push(Item::Module(number(self.modules.len())));
                self.modules
                    .push(component.get(unchecked_range).ok_or(Apart::Missing)?);
                self.sources.push(OnceCell::new());
            }
            Payload::ComponentSection {
                unchecked_range, ..
            } => {
                let inner = component.get(unchecked_range).ok_or(Apart::Missing)?;
                self.items.push(Item::Component(inner));
            }
            Payload::InstanceSection(instances) => {
                for instance in instances {
                    self.add_instance(instance?)?;
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    self.add_alias(alias?)?;
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    let function = function?;
                    let origins = &mut self.origins[Kind::Function as usize];
                    let index = match function {
                        CanonicalFunction::Lift { .. } => None,
                        _ => {
                            origins.push(Origin::Canonical(self.items.len()));
                            Some(number(origins.len() - 1))
                        }
                    };
                    self.items.push(Item::Canonical(function, index));
                }
            }
            // Their numbers are those of the component.
            Payload::CustomSection(_) => {}
            payload => {
                let names_modules = match &payload {
                    Payload::ComponentImportSection(imports) => {
                        any(imports.clone(), |import| import.ty.kind())?
                    }
                    Payload::ComponentExportSection(exports) => {
                        any(exports.clone(), |export| export.kind)?
                    }
                    Payload::ComponentInstanceSection(instances) => {
                        let mut kinds = Vec::new();
                        for instance in instances.clone() {
                            match instance? {
                                wasmparser::ComponentInstance::Instantiate { args, .. } => {
                                    kinds.extend(args.iter().map(|arg| arg.kind));
                                }
                                wasmparser::ComponentInstance::FromExports(exports) => {
                                    kinds.extend(exports.iter().map(|export| export.kind));
                                }
                            }
                        }
                        kinds.contains(&ComponentExternalKind::Module)
                    }
                    _ => false,
                };
                if names_modules {
                    return Err(Apart::Unknown("a core module that it imports or passes on"));
                }
                if let Some((id, range)) = payload.as_section() {
                    let data = component.get(range).ok_or(Apart::Missing)?;
                    self.items.push(Item::Section { id, data });
                }
            }
        }
        Ok(())
    }

    fn add_instance(&mut self, instance: CoreInstance<'a>) -> Result<(), Apart> {
        let mut list = HashMap::new();
        match &instance {
            CoreInstance::FromExports(exports) => {
                for export in exports {
                    list.insert(export.name, (kind_of(export.kind)?, export.index));
                }
            }
            CoreInstance::Instantiate { .. } => self.made += 1,
        }
        // More are refused later. The chains of what they import from each other have this length, too.
        if self.made > CORE_INSTANCES {
            return Err(Apart::Unknown("too many core instances"));
        }
        self.places.push(self.items.len());
        self.items
            .push(Item::Instance(number(self.instances.len())));
        self.lists.push(list);
        self.instances.push(instance);
        Ok(())
    }

    fn add_alias(&mut self, alias: ComponentAlias<'a>) -> Result<(), Apart> {
        let item = match alias {
            ComponentAlias::CoreInstanceExport {
                kind,
                instance_index: instance,
                name,
            } => {
                let kind = kind_of(kind)?;
                // An item of a list is what it was before.
                let origin = match self.instance(instance)? {
                    CoreInstance::Instantiate { .. } => Origin::Export { instance, name },
                    CoreInstance::FromExports(_) => {
                        let index = self.listed(kind, instance, name)?;
                        let origin = self.origins[kind as usize].get(index as usize);
                        *origin.ok_or(Apart::Missing)?
                    }
                };
                let origins = &mut self.origins[kind as usize];
                origins.push(origin);
                Item::CoreAlias(kind, number(origins.len() - 1))
            }
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Module,
                ..
            } => return Err(Apart::Unknown("a core module of an instance")),
            alias => Item::Alias(alias),
        };
        self.items.push(item);
        Ok(())
    }

    /// The inner components, in their order.
    pub(super) fn components(&self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().filter_map(|item| match item {
            Item::Component(component) => Some(*component),
            _ => None,
        })
    }

    /// The instances whose modules become one, in the order of their numbers.
    pub(super) fn members(&self) -> &[u32] {
        &self.members
    }

    /// Whether a member is an instance of this module.
    pub(super) fn is_merged(&self, module: u32) -> bool {
        self.members.iter().any(|member| {
            matches!(self.instance(*member), Ok(CoreInstance::Instantiate { module_index, .. })
                if *module_index == module)
        })
    }

    pub(super) fn is_member(&self, instance: u32) -> bool {
        self.members.binary_search(&instance).is_ok()
    }

    /// The item of an instance.
    pub(super) fn place(&self, instance: u32) -> Result<usize, Apart> {
        let place = self.places.get(instance as usize);
        place.copied().ok_or(Apart::Missing)
    }

    pub(super) fn instance(&self, instance: u32) -> Result<&CoreInstance<'a>, Apart> {
        let instance = self.instances.get(instance as usize);
        instance.ok_or(Apart::Missing)
    }

    /// The module of a member.
    pub(super) fn source(&self, instance: u32) -> Result<&Source<'a>, Apart> {
        match self.instance(instance)? {
            CoreInstance::Instantiate { module_index, .. } => self.parsed(*module_index),
            CoreInstance::FromExports(_) => None,
        }
        .ok_or(Apart::Missing)
    }

    /// A core module, if all that it has can be merged.
    pub(super) fn parsed(&self, module: u32) -> Option<&Source<'a>> {
        let bytes = *self.modules.get(module as usize)?;
        let source = self.sources.get(module as usize)?;
        source.get_or_init(|| Source::of(bytes).ok()).as_ref()
    }

    /// What the core item with this number is.
    pub(super) fn definition(&self, kind: Kind, index: u32) -> Result<Definition<'a>, Apart> {
        let origin = self.origins[kind as usize].get(index as usize);
        match *origin.ok_or(Apart::Missing)? {
            Origin::Export { instance, name } => self.export(kind, instance, name),
            Origin::Canonical(item) => Ok(Definition::Canonical(item)),
        }
    }

    /// The number of an item of a list.
    fn listed(&self, kind: Kind, instance: u32, name: &str) -> Result<u32, Apart> {
        let list = self.lists.get(instance as usize).ok_or(Apart::Missing)?;
        match list.get(name) {
            Some((of, index)) if *of == kind => Ok(*index),
            _ => Err(Apart::Missing),
        }
    }

    /// What an export of a core instance is.
    pub(super) fn export(
        &self,
        kind: Kind,
        instance: u32,
        name: &'a str,
    ) -> Result<Definition<'a>, Apart> {
        match self.instance(instance)? {
            CoreInstance::FromExports(_) => {
                self.definition(kind, self.listed(kind, instance, name)?)
            }
            CoreInstance::Instantiate { .. } if self.is_member(instance) => {
                let exported = self.source(instance)?.exports.get(name);
                match exported.ok_or(Apart::Missing)? {
                    (of, index) if *of == kind => self.local(kind, instance, *index),
                    _ => Err(Apart::Missing),
                }
            }
            CoreInstance::Instantiate { .. } => Ok(Definition::Export { instance, name }),
        }
    }

    /// What an item of the module of a member is.
    pub(super) fn local(
        &self,
        kind: Kind,
        instance: u32,
        index: u32,
    ) -> Result<Definition<'a>, Apart> {
        let imports = &self.source(instance)?.imports[kind as usize];
        match imports.get(index as usize) {
            Some(import) => self.imported(kind, instance, import.module, import.name),
            None => Ok(Definition::Member { instance, index }),
        }
    }

    /// What an import of an instance is.
    fn imported(
        &self,
        kind: Kind,
        instance: u32,
        module: &str,
        name: &'a str,
    ) -> Result<Definition<'a>, Apart> {
        let CoreInstance::Instantiate { args, .. } = self.instance(instance)? else {
            return Err(Apart::Missing);
        };
        let arg = args.iter().rfind(|arg| arg.name == module);
        self.export(kind, arg.ok_or(Apart::Missing)?.index, name)
    }

    /// Whether an item exists only after a member.
    pub(super) fn depends(&self, definition: Definition<'_>) -> bool {
        match definition {
            Definition::Member { .. } => true,
            Definition::Export { instance, .. } => self.dependent.contains(&instance),
            Definition::Canonical(item) => self.dependent_canonical.contains(&item),
        }
    }

    /// Whether an instance is a member or depends on one.
    pub(super) fn instance_depends(&self, instance: u32) -> Result<bool, Apart> {
        match self.instance(instance)? {
            CoreInstance::FromExports(exports) => {
                for export in exports {
                    let definition = self.definition(kind_of(export.kind)?, export.index)?;
                    if self.depends(definition) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            CoreInstance::Instantiate { args, .. } => {
                if self.is_member(instance) {
                    return Ok(true);
                }
                for arg in args {
                    if self.instance_depends(arg.index)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// The core items that a canonical function names.
    pub(super) fn named_by(function: &CanonicalFunction) -> Result<Vec<(Kind, u32)>, Apart> {
        let (mut named, options) = match function {
            CanonicalFunction::Lift {
                core_func_index,
                options,
                ..
            } => (vec![(Kind::Function, *core_func_index)], options),
            CanonicalFunction::Lower { options, .. } => (Vec::new(), options),
            CanonicalFunction::ResourceNew { .. }
            | CanonicalFunction::ResourceDrop { .. }
            | CanonicalFunction::ResourceRep { .. } => return Ok(Vec::new()),
            _ => return Err(Apart::Unknown("a canonical function of another kind")),
        };
        for option in options {
            named.push(match option {
                CanonicalOption::Memory(index) => (Kind::Memory, *index),
                CanonicalOption::Realloc(index) | CanonicalOption::PostReturn(index) => {
                    (Kind::Function, *index)
                }
                CanonicalOption::UTF8 | CanonicalOption::UTF16 | CanonicalOption::CompactUTF16 => {
                    continue;
                }
                _ => return Err(Apart::Unknown("a canonical option of another kind")),
            });
        }
        Ok(named)
    }

    fn choose_members(&mut self) -> Result<(), Apart> {
        let mut uses: HashMap<u32, u32> = HashMap::new();
        for instance in &self.instances {
            if let CoreInstance::Instantiate { module_index, .. } = instance {
                *uses.entry(*module_index).or_default() += 1;
            }
        }
        let mut others = Others::default();
        for place in 0..self.items.len() {
            match &self.items[place] {
                Item::Canonical(function, _) => {
                    for (kind, index) in Self::named_by(function)? {
                        if self.depends(self.definition(kind, index)?) {
                            self.dependent_canonical.insert(place);
                            break;
                        }
                    }
                }
                Item::Instance(index) => {
                    let index = *index;
                    let CoreInstance::Instantiate { module_index, .. } = self.instance(index)?
                    else {
                        continue;
                    };
                    let module = *module_index;
                    if uses.get(&module) == Some(&1) && self.can_join(index, module, &others)? {
                        self.members.push(index);
                        others.closed |= self.source(index)?.start.is_some();
                    } else {
                        if self.instance_depends(index)? {
                            self.dependent.insert(index);
                        }
                        self.note(&mut others, index, module)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the module of an instance can be merged with those of the members.
    fn can_join(&self, instance: u32, module: u32, others: &Others<'a>) -> Result<bool, Apart> {
        let Some(source) = self.parsed(module) else {
            return Ok(false);
        };
        if others.closed || (source.start.is_some() && others.any) {
            return Ok(false);
        }
        for (kind, _, import) in source.imported() {
            let definition = self.imported(kind, instance, import.module, import.name)?;
            if !matches!(definition, Definition::Member { .. }) && self.depends(definition) {
                return Ok(false);
            }
        }
        // What it writes at its start is written before code of the others runs, and before they write.
        for (kind, index) in source.written() {
            // Nobody else has seen what it defines.
            let Some(import) = source.imports[kind as usize].get(index as usize) else {
                continue;
            };
            let target = self.imported(kind, instance, import.module, import.name)?;
            if others.run || others.written.contains(&(kind, target)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Note an instance that is not a member.
    fn note(&self, others: &mut Others<'a>, instance: u32, module: u32) -> Result<(), Apart> {
        others.any = true;
        let Some(source) = self.parsed(module) else {
            others.run = true;
            return Ok(());
        };
        others.run |= source.start.is_some();
        for (kind, index) in source.written() {
            if let Some(import) = source.imports[kind as usize].get(index as usize) {
                let target = self.imported(kind, instance, import.module, import.name)?;
                others.written.insert((kind, target));
            }
        }
        Ok(())
    }
}

/// The instances so far that are not members.
#[derive(Default)]
struct Others<'a> {
    /// There is one.
    any: bool,
    /// One may have run code.
    run: bool,
    /// The tables and memories of others that they wrote to.
    written: HashSet<(Kind, Definition<'a>)>,
    /// A member has run code: no later one can be a member.
    closed: bool,
}

/// Whether one of these is a core module.
fn any<'a, T: wasmparser::FromReader<'a>>(
    items: wasmparser::SectionLimited<'a, T>,
    kind: impl Fn(&T) -> ComponentExternalKind,
) -> Result<bool, Apart> {
    for item in items {
        if kind(&item?) == ComponentExternalKind::Module {
            return Ok(true);
        }
    }
    Ok(false)
}
