//! What the core modules of a component share, and which of them can be one.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentType,
    ConstExpr, Instance as CoreInstance, Operator, Payload,
};

use super::source::{Segment, Source};
use super::{Apart, KINDS, Kind, kind_of, number};
use crate::{CORE_INSTANCES, parts};

/// A part of a component. Numbers count the items of their kind, as in the component.
pub(super) enum Item<'a> {
    /// A section without core items.
    Section {
        id: u8,
        data: &'a [u8],
        /// It makes instances of components, which may run code.
        runs: bool,
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
    /// An item that an instance defines, with its number in the module of the instance.
    Item { instance: u32, index: u32 },
    /// An export of an instance whose module cannot be read: it may be an item of another instance.
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
    /// The item before which the merged module has all that it imports.
    pub(super) place: usize,
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
                let mut runs = false;
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
                                    runs = true;
                                    kinds.extend(args.iter().map(|arg| arg.kind));
                                }
                                wasmparser::ComponentInstance::FromExports(exports) => {
                                    kinds.extend(exports.iter().map(|export| export.kind));
                                }
                            }
                        }
                        kinds.contains(&ComponentExternalKind::Module)
                    }
                    Payload::ComponentTypeSection(types) => {
                        for ty in types.clone() {
                            if let ComponentType::Resource { dtor: Some(_), .. } = ty? {
                                return Err(Apart::Unknown("a resource with a destructor"));
                            }
                        }
                        false
                    }
                    Payload::ComponentStartSection { .. } => {
                        return Err(Apart::Unknown("a start of a component"));
                    }
                    _ => false,
                };
                if names_modules {
                    return Err(Apart::Unknown("a core module that it imports or passes on"));
                }
                if let Some((id, range)) = payload.as_section() {
                    let data = component.get(range).ok_or(Apart::Missing)?;
                    self.items.push(Item::Section { id, data, runs });
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

    /// Whether a member defines this item.
    pub(super) fn is_of_member(&self, definition: Definition<'_>) -> bool {
        matches!(definition, Definition::Item { instance, .. } if self.is_member(instance))
    }

    /// The item of an instance.
    fn place_of(&self, instance: u32) -> Result<usize, Apart> {
        let place = self.places.get(instance as usize);
        place.copied().ok_or(Apart::Missing)
    }

    pub(super) fn instance(&self, instance: u32) -> Result<&CoreInstance<'a>, Apart> {
        let instance = self.instances.get(instance as usize);
        instance.ok_or(Apart::Missing)
    }

    /// The module of an instance, if it can be read.
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
            CoreInstance::Instantiate { module_index, .. } => match self.parsed(*module_index) {
                Some(source) => match source.exports.get(name) {
                    Some((of, index)) if *of == kind => self.local(kind, instance, *index),
                    _ => Err(Apart::Missing),
                },
                None => Ok(Definition::Export { instance, name }),
            },
        }
    }

    /// What an item of the module of an instance is.
    pub(super) fn local(
        &self,
        kind: Kind,
        instance: u32,
        index: u32,
    ) -> Result<Definition<'a>, Apart> {
        let imports = &self.source(instance)?.imports[kind as usize];
        match imports.get(index as usize) {
            Some(import) => self.imported(kind, instance, import.module, import.name),
            None => Ok(Definition::Item { instance, index }),
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
            Definition::Item { instance, .. } | Definition::Export { instance, .. } => {
                self.is_member(instance) || self.dependent.contains(&instance)
            }
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
                Item::Section { runs: true, .. } => others.run(place),
                Item::Canonical(function, index) => {
                    let mut depends = false;
                    for (kind, index) in Self::named_by(function)? {
                        depends |= self.depends(self.definition(kind, index)?);
                    }
                    if depends {
                        if index.is_none() {
                            // Items that are kept as they are may need what it lifts.
                            others.stay(place);
                        }
                        self.dependent_canonical.insert(place);
                    }
                }
                Item::Instance(index) => {
                    let index = *index;
                    let CoreInstance::Instantiate { module_index, .. } = self.instance(index)?
                    else {
                        continue;
                    };
                    let module = *module_index;
                    let merged = match uses.get(&module) {
                        Some(1) => self.place_with(index, module, &others)?,
                        _ => None,
                    };
                    if let Some(merged) = merged {
                        if self.members.is_empty() {
                            others = Others::default();
                        }
                        self.place = merged;
                        self.members.push(index);
                        others.closed = self.source(index)?.start.is_some();
                    } else {
                        if self.instance_depends(index)? {
                            self.dependent.insert(index);
                        }
                        self.note(&mut others, place, index, module)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the merged module would be if this instance was a member. `None` = it cannot be one.
    fn place_with(
        &self,
        instance: u32,
        module: u32,
        others: &Others<'a>,
    ) -> Result<Option<usize>, Apart> {
        let Some(source) = self.parsed(module) else {
            return Ok(None);
        };
        let is_first = self.members.is_empty();
        let mut place = match is_first {
            true => self.place_of(instance)?,
            false => self.place,
        };
        for (kind, _, import) in source.imported() {
            let definition = self.imported(kind, instance, import.module, import.name)?;
            if self.is_of_member(definition) {
                continue;
            }
            if self.depends(definition) {
                return Ok(None);
            }
            let provider = match definition {
                Definition::Canonical(item) => item,
                Definition::Item { instance, .. } | Definition::Export { instance, .. } => {
                    self.place_of(instance)?
                }
            };
            place = place.max(provider + 1);
        }
        for segment in source.segments() {
            let target = self.local(segment.kind, instance, segment.index)?;
            // A write that fails would fail at another time. And what others wrote is written later.
            if !self.holds(target, instance, &segment)?
                || (!is_first && others.written.contains(&(segment.kind, target)))
            {
                return Ok(None);
            }
        }
        let is_late = others.closed
            || (source.start.is_some() && others.any)
            || others.stays.is_some_and(|stays| stays < place);
        Ok((is_first || !is_late).then_some(place))
    }

    /// Whether the table or memory has the place of the segment at every time.
    fn holds(
        &self,
        target: Definition<'a>,
        instance: u32,
        segment: &Segment<'_, 'a>,
    ) -> Result<bool, Apart> {
        let Definition::Item {
            instance: owner,
            index,
        } = target
        else {
            return Ok(false);
        };
        let owner = self.source(owner)?;
        let Some(least) = owner.least(segment.kind, index) else {
            return Ok(false);
        };
        let start = self.constant(instance, segment.offset, &mut CONSTANT_MAX.clone())?;
        let end = start.and_then(|start| start.checked_add(segment.length));
        Ok(end.is_some_and(|end| end <= least))
    }

    /// The value of a constant expression of an instance. `None` = it is not known here.
    fn constant(
        &self,
        instance: u32,
        expression: &ConstExpr<'a>,
        steps: &mut u32,
    ) -> Result<Option<u64>, Apart> {
        let mut values = Vec::new();
        for operator in expression.get_operators_reader() {
            let operator = operator?;
            let Some(left) = steps.checked_sub(1) else {
                return Ok(None);
            };
            *steps = left;
            let value = match operator {
                Operator::I32Const { value } => Some(u64::from(value.cast_unsigned())),
                Operator::I64Const { value } => Some(value.cast_unsigned()),
                Operator::GlobalGet { global_index } => {
                    match self.local(Kind::Global, instance, global_index)? {
                        Definition::Item { instance, index } => {
                            let global = self.source(instance)?.global(index);
                            let global = global.ok_or(Apart::Missing)?;
                            self.constant(instance, &global.init_expr, steps)?
                        }
                        _ => None,
                    }
                }
                Operator::I32Add => match (values.pop(), values.pop()) {
                    (Some(one), Some(other)) => Some((one + other) & u64::from(u32::MAX)),
                    _ => None,
                },
                Operator::End => return Ok(values.pop()),
                _ => None,
            };
            let Some(value) = value else { return Ok(None) };
            values.push(value);
        }
        Ok(None)
    }

    /// Note an instance that is not a member.
    fn note(
        &self,
        others: &mut Others<'a>,
        place: usize,
        instance: u32,
        module: u32,
    ) -> Result<(), Apart> {
        others.any = true;
        let Some(source) = self.parsed(module) else {
            others.run(place);
            return Ok(());
        };
        if source.start.is_some() {
            others.run(place);
        }
        for segment in source.segments() {
            others.stay(place);
            match self.local(segment.kind, instance, segment.index)? {
                target @ Definition::Item { .. } => {
                    others.written.insert((segment.kind, target));
                }
                _ => others.run(place),
            }
        }
        Ok(())
    }
}

/// The operators of an offset, with those of the globals that it names.
const CONSTANT_MAX: u32 = 100;

/// What comes after the first member and is not merged.
#[derive(Default)]
struct Others<'a> {
    /// There is an instance.
    any: bool,
    /// The first item that must not come before the merged module.
    stays: Option<usize>,
    /// The tables and memories that instances wrote to.
    written: HashSet<(Kind, Definition<'a>)>,
    /// Code may have run: no later instance can be a member.
    closed: bool,
}

impl Others<'_> {
    /// The item must not come before the merged module.
    fn stay(&mut self, place: usize) {
        self.stays.get_or_insert(place);
    }

    /// The item runs code, or may write to anything.
    fn run(&mut self, place: usize) {
        self.stay(place);
        self.closed = true;
    }
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
