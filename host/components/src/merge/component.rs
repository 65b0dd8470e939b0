//! Writes a component around its merged module.

use std::collections::{HashMap, HashSet};

use wasm_encoder_of_wit::reencode::{self, Reencode, ReencodeComponent};
use wasm_encoder_of_wit::{
    Alias, CanonicalFunctionSection, Component, ComponentAliasSection, ComponentSectionId,
    InstanceSection, ModuleArg, RawSection,
};
use wasmparser::{Instance as CoreInstance, InstantiationArg};

use super::graph::{Definition, Graph, Item};
use super::module::{IMPORTS, Merged, export_kind, merge};
use super::{Apart, KINDS, Kind, kind_of};

/// The component with one module instead of those of its members, and with these inner components.
pub(super) fn written(graph: &Graph<'_>, inner: &[Option<Vec<u8>>]) -> Result<Vec<u8>, Apart> {
    let live = Live::of(graph)?;
    let merged = merge(graph, &live.exports)?;
    let mut writer = Writer {
        graph,
        live,
        component: Component::new(),
        numbers: Numbers::default(),
        merged: 0,
    };
    let mut inner = inner.iter();
    let mut later = Vec::new();
    for (index, item) in graph.items.iter().enumerate() {
        if index == graph.place {
            writer.merged(&merged)?;
            for item in later.drain(..) {
                writer.item(item, None)?;
            }
        }
        let inner = match item {
            Item::Component(_) => inner.next().and_then(Option::as_deref),
            _ => None,
        };
        if index < graph.place && depends(graph, index)? {
            // It changes the numbers of core items only, and runs no code.
            later.push(item);
        } else {
            writer.item(item, inner)?;
        }
    }
    Ok(writer.component.finish())
}

/// Whether an item needs the merged module.
fn depends(graph: &Graph<'_>, index: usize) -> Result<bool, Apart> {
    match graph.items.get(index) {
        Some(Item::Instance(instance)) => graph.instance_depends(*instance),
        Some(Item::CoreAlias(kind, index)) => Ok(graph.depends(graph.definition(*kind, *index)?)),
        Some(Item::Canonical(..)) => Ok(graph.depends(Definition::Canonical(index))),
        _ => Ok(false),
    }
}

/// The items that parts other than the members use.
#[derive(Default)]
struct Live<'a> {
    items: [HashSet<u32>; KINDS],
    /// Instances that are lists of items.
    instances: HashSet<u32>,
    /// Those that members define. They are the exports of the merged module.
    exports: Vec<(Kind, Definition<'a>)>,
    places: HashMap<(Kind, Definition<'a>), usize>,
}

impl<'a> Live<'a> {
    fn of(graph: &Graph<'a>) -> Result<Self, Apart> {
        let mut live = Self::default();
        for item in &graph.items {
            match item {
                Item::Canonical(function, _) => {
                    for (kind, index) in Graph::named_by(function)? {
                        live.item(graph, kind, index)?;
                    }
                }
                Item::Instance(instance) if !graph.is_member(*instance) => {
                    if let CoreInstance::Instantiate { module_index, args } =
                        graph.instance(*instance)?
                    {
                        for arg in args {
                            live.arg(graph, *module_index, arg)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(live)
    }

    fn item(&mut self, graph: &Graph<'a>, kind: Kind, index: u32) -> Result<(), Apart> {
        if self.items[kind as usize].insert(index) {
            self.definition(graph, kind, graph.definition(kind, index)?);
        }
        Ok(())
    }

    fn definition(&mut self, graph: &Graph<'a>, kind: Kind, definition: Definition<'a>) {
        if graph.is_of_member(definition) {
            let exports = &mut self.exports;
            self.places.entry((kind, definition)).or_insert_with(|| {
                exports.push((kind, definition));
                exports.len() - 1
            });
        }
    }

    /// What an instance of `module` takes.
    fn arg(
        &mut self,
        graph: &Graph<'a>,
        module: u32,
        arg: &InstantiationArg<'a>,
    ) -> Result<(), Apart> {
        if graph.is_member(arg.index) {
            for (_, kind, definition) in taken(graph, module, arg)? {
                self.definition(graph, kind, definition);
            }
        } else if let CoreInstance::FromExports(exports) = graph.instance(arg.index)?
            && self.instances.insert(arg.index)
        {
            for export in exports {
                self.item(graph, kind_of(export.kind)?, export.index)?;
            }
        }
        Ok(())
    }
}

/// The items of a member that an instance of `module` takes, with their names.
fn taken<'a>(
    graph: &Graph<'a>,
    module: u32,
    arg: &InstantiationArg<'a>,
) -> Result<Vec<(&'a str, Kind, Definition<'a>)>, Apart> {
    let source = graph.parsed(module).ok_or(Apart::Missing)?;
    let imports = source
        .imported()
        .filter(|(.., import)| import.module == arg.name);
    imports
        .map(|(kind, _, import)| {
            let definition = graph.export(kind, arg.index, import.name)?;
            Ok((import.name, kind, definition))
        })
        .collect()
}

struct Writer<'g, 'a> {
    graph: &'g Graph<'a>,
    live: Live<'a>,
    component: Component,
    numbers: Numbers,
    /// The number of the merged instance.
    merged: u32,
}

impl<'a> Writer<'_, 'a> {
    /// Write an item; `inner` replaces an inner component.
    fn item(&mut self, item: &Item<'a>, inner: Option<&[u8]>) -> Result<(), Apart> {
        match item {
            Item::Section { id, data, .. } => {
                self.component.section(&RawSection { id: *id, data });
            }
            Item::Component(component) => {
                self.component.section(&RawSection {
                    id: ComponentSectionId::Component as u8,
                    data: inner.unwrap_or(component),
                });
            }
            Item::Module(module) => {
                if !self.graph.is_merged(*module) {
                    let bytes = self.graph.modules.get(*module as usize);
                    self.module(Some(*module), bytes.ok_or(Apart::Missing)?);
                }
            }
            Item::Instance(instance) => self.instance(*instance)?,
            Item::CoreAlias(kind, index) => {
                if self.live.items[*kind as usize].contains(index) {
                    let definition = self.graph.definition(*kind, *index)?;
                    let number = self.provided(*kind, definition)?;
                    self.numbers.items[*kind as usize].insert(*index, number);
                }
            }
            Item::Alias(alias) => {
                let mut section = ComponentAliasSection::new();
                section.alias(self.numbers.component_alias(alias.clone())?);
                self.component.section(&section);
            }
            Item::Canonical(function, index) => {
                let mut section = CanonicalFunctionSection::new();
                self.numbers
                    .parse_component_canonical(&mut section, function.clone())?;
                self.component.section(&section);
                if let Some(index) = index {
                    let number = self.numbers.next(Kind::Function);
                    self.numbers.items[Kind::Function as usize].insert(*index, number);
                }
            }
        }
        Ok(())
    }

    fn module(&mut self, old: Option<u32>, bytes: &[u8]) -> u32 {
        self.component.section(&RawSection {
            id: ComponentSectionId::CoreModule as u8,
            data: bytes,
        });
        let number = self.numbers.modules_next;
        self.numbers.modules_next += 1;
        if let Some(old) = old {
            self.numbers.modules.insert(old, number);
        }
        number
    }

    fn instance(&mut self, instance: u32) -> Result<(), Apart> {
        let mut section = InstanceSection::new();
        match self.graph.instance(instance)? {
            CoreInstance::FromExports(exports) => {
                if !self.live.instances.contains(&instance) {
                    return Ok(());
                }
                let mut items = Vec::new();
                for export in exports {
                    let kind = kind_of(export.kind)?;
                    let number = self.numbers.item(kind, export.index)?;
                    items.push((export.name, export_kind(kind), number));
                }
                section.export_items(items);
            }
            CoreInstance::Instantiate { module_index, args } => {
                if self.graph.is_member(instance) {
                    return Ok(());
                }
                let module = self.numbers.modules.get(module_index);
                let module = *module.ok_or(Apart::Missing)?;
                let mut with = Vec::new();
                for arg in args {
                    let number = match self.graph.is_member(arg.index) {
                        true => self.part(taken(self.graph, *module_index, arg)?)?,
                        false => self.numbers.instance(arg.index)?,
                    };
                    with.push((arg.name, ModuleArg::Instance(number)));
                }
                section.instantiate(module, with);
            }
        }
        let number = self.numbers.instance_added();
        self.numbers.instances.insert(instance, number);
        self.component.section(&section);
        Ok(())
    }

    /// Write the merged module and its instance.
    fn merged(&mut self, merged: &Merged<'a>) -> Result<(), Apart> {
        let module = self.module(None, &merged.module);
        let mut items = Vec::new();
        for (kind, definition) in &merged.imports {
            items.push((items.len().to_string(), *kind, *definition));
        }
        let imports = self.part(items)?;
        let mut section = InstanceSection::new();
        section.instantiate(module, [(IMPORTS, ModuleArg::Instance(imports))]);
        self.merged = self.numbers.instance_added();
        self.component.section(&section);
        Ok(())
    }

    /// Write an instance that is a list of these items, and return its number.
    fn part<N: AsRef<str>>(&mut self, items: Vec<(N, Kind, Definition<'a>)>) -> Result<u32, Apart> {
        let mut numbered = Vec::new();
        for (name, kind, definition) in items {
            numbered.push((name, export_kind(kind), self.provided(kind, definition)?));
        }
        let mut section = InstanceSection::new();
        section.export_items(
            numbered
                .iter()
                .map(|(name, kind, number)| (name.as_ref(), *kind, *number)),
        );
        self.component.section(&section);
        Ok(self.numbers.instance_added())
    }

    /// The number of an item that is defined already.
    fn provided(&mut self, kind: Kind, definition: Definition<'a>) -> Result<u32, Apart> {
        match definition {
            Definition::Canonical(item) => match self.graph.items.get(item) {
                Some(Item::Canonical(_, Some(index))) => self.numbers.item(kind, *index),
                _ => Err(Apart::Missing),
            },
            Definition::Item { instance, index } if !self.graph.is_member(instance) => {
                let exported = &self.graph.source(instance)?.exported;
                let name = exported.get(&(kind, index)).ok_or(Apart::Missing)?;
                Ok(self.alias(kind, self.numbers.instance(instance)?, name))
            }
            Definition::Item { .. } => {
                let place = self.live.places.get(&(kind, definition));
                let name = place.ok_or(Apart::Missing)?.to_string();
                Ok(self.alias(kind, self.merged, &name))
            }
            Definition::Export { instance, name } => {
                Ok(self.alias(kind, self.numbers.instance(instance)?, name))
            }
        }
    }

    /// Write an alias, and return the number of its item.
    fn alias(&mut self, kind: Kind, instance: u32, name: &str) -> u32 {
        let mut section = ComponentAliasSection::new();
        section.alias(Alias::CoreInstanceExport {
            instance,
            kind: export_kind(kind),
            name,
        });
        self.component.section(&section);
        self.numbers.next(kind)
    }
}

/// The numbers of core items in the component that is written, by those that they had.
#[derive(Default)]
struct Numbers {
    items: [HashMap<u32, u32>; KINDS],
    items_next: [u32; KINDS],
    modules: HashMap<u32, u32>,
    modules_next: u32,
    instances: HashMap<u32, u32>,
    instances_next: u32,
}

impl Numbers {
    fn next(&mut self, kind: Kind) -> u32 {
        let next = &mut self.items_next[kind as usize];
        *next += 1;
        *next - 1
    }

    fn instance_added(&mut self) -> u32 {
        self.instances_next += 1;
        self.instances_next - 1
    }

    fn item(&self, kind: Kind, old: u32) -> Result<u32, Apart> {
        let number = self.items[kind as usize].get(&old);
        number.copied().ok_or(Apart::Missing)
    }

    fn instance(&self, old: u32) -> Result<u32, Apart> {
        self.instances.get(&old).copied().ok_or(Apart::Missing)
    }
}

impl Reencode for Numbers {
    type Error = Apart;

    fn function_index(&mut self, function: u32) -> Result<u32, reencode::Error<Apart>> {
        let number = self.item(Kind::Function, function);
        number.map_err(reencode::Error::UserError)
    }

    fn memory_index(&mut self, memory: u32) -> Result<u32, reencode::Error<Apart>> {
        let number = self.item(Kind::Memory, memory);
        number.map_err(reencode::Error::UserError)
    }
}

impl ReencodeComponent for Numbers {}
