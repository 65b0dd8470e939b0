//! Core modules that become one.

use std::collections::HashMap;

use wasm_encoder_of_wit::reencode::{self, Reencode};
use wasm_encoder_of_wit::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Encode, ExportKind,
    ExportSection, FuncType, FunctionSection, GlobalSection, GlobalType, ImportSection,
    MemorySection, Module, NameMap, NameSection, StartSection, TableSection, TypeSection,
};
use wasmparser::Operator;

use super::graph::{Definition, Graph};
use super::number;
use super::source::Source;
use super::{ALL, Apart, KINDS, Kind};

/// The module that the merged one imports from.
pub(super) const IMPORTS: &str = "";

/// Functions and globals of a merged module. Each takes up to 32 bytes of an instance, which may have 16 MiB.
const ITEMS_MAX: usize = 400_000;

/// Bytes of a constant expression. Those of others are written out in it, and could double with each module.
const CONSTANT_MAX: usize = 256;

type Reencoded<T> = Result<T, reencode::Error<Apart>>;

/// The module that members have become.
pub(super) struct Merged<'a> {
    pub(super) module: Vec<u8>,
    /// What it imports from [`IMPORTS`], each with its place in this list as its name.
    pub(super) imports: Vec<(Kind, Definition<'a>)>,
}

/// Make one module of the members, with these exports. The name of an export is its place in the list.
pub(super) fn merge<'a>(
    graph: &Graph<'a>,
    exports: &[(Kind, Definition<'a>)],
) -> Result<Merged<'a>, Apart> {
    let mut members = Vec::new();
    for instance in graph.members() {
        members.push((*instance, graph.source(*instance)?));
    }
    let items = members.iter().map(|(_, source)| source.items());
    if items.sum::<usize>() > ITEMS_MAX {
        return Err(Apart::Unknown("too many functions for one module"));
    }

    let mut types = Types::default();
    let mut numbering = Numbering::default();
    let mut typed = Vec::new();
    for (_, source) in &members {
        typed.push(types.of(source)?);
    }
    let mut import_section = ImportSection::new();
    for ((instance, source), types) in members.iter().zip(&typed) {
        for (kind, index, import) in source.imported() {
            let definition = graph.local(kind, *instance, index)?;
            if graph.is_of_member(definition) || numbering.number(kind, definition).is_some() {
                continue;
            }
            let name = numbering.imports.len().to_string();
            let ty = Indices::of_types(types).entity_type(import.ty)?;
            import_section.import(IMPORTS, &name, ty);
            numbering.add(kind, definition);
            numbering.imports.push((kind, definition));
        }
    }
    for (instance, source) in &members {
        for kind in ALL {
            let imported = source.imports[kind as usize].len();
            for index in imported..imported + source.defined(kind) {
                let (instance, index) = (*instance, number(index));
                numbering.add(kind, Definition::Item { instance, index });
            }
        }
    }

    let mut sections = Sections::default();
    for ((instance, source), types) in members.iter().zip(typed) {
        let mut indices = Indices::of_types(&types);
        indices.elements = sections.elements.len();
        indices.data = sections.data.len();
        for kind in ALL {
            let all = source.imports[kind as usize].len() + source.defined(kind);
            for index in 0..number(all) {
                let definition = graph.local(kind, *instance, index)?;
                let index = numbering.number(kind, definition).ok_or(Apart::Missing)?;
                indices.items[kind as usize].push(index);
            }
        }
        sections.add(source, &mut indices)?;
    }

    let mut export_section = ExportSection::new();
    for (place, (kind, definition)) in exports.iter().enumerate() {
        let index = numbering.number(*kind, *definition);
        let index = index.ok_or(Apart::Missing)?;
        export_section.export(&place.to_string(), export_kind(*kind), index);
    }
    let mut module = Module::new();
    module
        .section(&types.section)
        .section(&import_section)
        .section(&sections.functions)
        .section(&sections.tables)
        .section(&sections.memories)
        .section(&sections.globals)
        .section(&export_section);
    if let Some(function_index) = sections.start {
        module.section(&StartSection { function_index });
    }
    module
        .section(&sections.elements)
        .section(&DataCountSection {
            count: sections.data.len(),
        })
        .section(&sections.code)
        .section(&sections.data);
    let mut names = NameSection::new();
    // Backtraces name the one that has most of the code.
    let largest = members.iter().max_by_key(|(_, source)| source.bodies.len());
    if let Some(name) = largest.and_then(|(_, source)| source.name) {
        names.module(name);
    }
    names.functions(&sections.names);
    module.section(&names);
    Ok(Merged {
        module: module.finish(),
        imports: numbering.imports,
    })
}

pub(super) fn export_kind(kind: Kind) -> ExportKind {
    match kind {
        Kind::Function => ExportKind::Func,
        Kind::Table => ExportKind::Table,
        Kind::Memory => ExportKind::Memory,
        Kind::Global => ExportKind::Global,
    }
}

/// The types of all members: each once.
#[derive(Default)]
struct Types {
    section: TypeSection,
    numbers: HashMap<FuncType, u32>,
}

impl Types {
    /// The numbers of the types of a module.
    fn of(&mut self, source: &Source<'_>) -> Result<Vec<u32>, Apart> {
        let mut indices = Vec::with_capacity(source.types.len());
        for ty in &source.types {
            let ty = Indices::of_types(&indices).func_type(ty.clone())?;
            let next = number(self.numbers.len());
            let section = &mut self.section;
            let index = *self.numbers.entry(ty).or_insert_with_key(|ty| {
                section.ty().func_type(ty);
                next
            });
            indices.push(index);
        }
        Ok(indices)
    }
}

/// The numbers of items in the merged module.
#[derive(Default)]
struct Numbering<'a> {
    numbers: [HashMap<Definition<'a>, u32>; KINDS],
    imports: Vec<(Kind, Definition<'a>)>,
}

impl<'a> Numbering<'a> {
    fn number(&self, kind: Kind, definition: Definition<'a>) -> Option<u32> {
        self.numbers[kind as usize].get(&definition).copied()
    }

    fn add(&mut self, kind: Kind, definition: Definition<'a>) {
        let numbers = &mut self.numbers[kind as usize];
        let next = number(numbers.len());
        numbers.insert(definition, next);
    }
}

/// The sections of the merged module, with the members so far.
#[derive(Default)]
struct Sections {
    functions: FunctionSection,
    tables: TableSection,
    memories: MemorySection,
    globals: GlobalSection,
    /// The initial values of globals that do not change, without the `end`.
    constants: HashMap<u32, Vec<u8>>,
    start: Option<u32>,
    elements: ElementSection,
    code: CodeSection,
    data: DataSection,
    names: NameMap,
}

impl Sections {
    fn add(&mut self, source: &Source<'_>, indices: &mut Indices<'_>) -> Result<(), Apart> {
        for ty in &source.functions {
            self.functions.function(indices.type_index(*ty)?);
        }
        for (index, global) in source.globals.iter().enumerate() {
            let ty: GlobalType = indices.global_type(global.ty)?;
            let value = indices.constant(&self.constants, &global.init_expr)?;
            self.globals.global(ty, &ConstExpr::raw(value.clone()));
            if !ty.mutable {
                let index = source.imports[Kind::Global as usize].len() + index;
                self.constants
                    .insert(indices.global_index(number(index))?, value);
            }
        }
        // All constants that this member can name are known now.
        indices.constants = std::mem::take(&mut self.constants);
        let added = self.add_rest(source, indices);
        self.constants = std::mem::take(&mut indices.constants);
        Ok(added?)
    }

    fn add_rest(&mut self, source: &Source<'_>, indices: &mut Indices<'_>) -> Reencoded<()> {
        for table in &source.tables {
            indices.parse_table(&mut self.tables, table.clone())?;
        }
        for memory in &source.memories {
            self.memories.memory(indices.memory_type(*memory)?);
        }
        if let Some(start) = source.start {
            self.start = Some(indices.function_index(start)?);
        }
        for element in &source.elements {
            indices.parse_element(&mut self.elements, element.clone())?;
        }
        for body in &source.bodies {
            indices.parse_function_body(&mut self.code, body.clone())?;
        }
        for data in &source.data {
            indices.parse_data(&mut self.data, data.clone())?;
        }
        let imported = number(source.imports[Kind::Function as usize].len());
        for (index, name) in &source.names {
            // An import has the name of what it is.
            if *index >= imported
                && let Ok(index) = indices.function_index(*index)
            {
                self.names.append(index, name);
            }
        }
        Ok(())
    }
}

/// Writes the items of a member with their numbers in the merged module.
#[derive(Default)]
struct Indices<'t> {
    types: &'t [u32],
    items: [Vec<u32>; KINDS],
    /// The elements and data segments before its own.
    elements: u32,
    data: u32,
    constants: HashMap<u32, Vec<u8>>,
}

fn known(number: Option<&u32>) -> Reencoded<u32> {
    let missing = reencode::Error::UserError(Apart::Missing);
    number.copied().ok_or(missing)
}

impl<'t> Indices<'t> {
    fn of_types(types: &'t [u32]) -> Self {
        Self {
            types,
            ..Self::default()
        }
    }

    fn item(&self, kind: Kind, index: u32) -> Reencoded<u32> {
        known(self.items[kind as usize].get(index as usize))
    }

    /// A constant expression without its `end`. It names no global that another module had imported: such a
    /// global may be a defined one now, which only newer versions of wasm allow there.
    fn constant(
        &mut self,
        constants: &HashMap<u32, Vec<u8>>,
        expression: &wasmparser::ConstExpr<'_>,
    ) -> Reencoded<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut operators = expression.get_operators_reader();
        while !operators.eof() {
            let operator = operators.read()?;
            match operator {
                Operator::End => {}
                Operator::GlobalGet { global_index } => {
                    let index = self.global_index(global_index)?;
                    match constants.get(&index) {
                        Some(value) => bytes.extend(value),
                        None => self.instruction(operator)?.encode(&mut bytes),
                    }
                }
                operator => self.instruction(operator)?.encode(&mut bytes),
            }
            if bytes.len() > CONSTANT_MAX {
                return Err(reencode::Error::UserError(Apart::Unknown(
                    "a long constant",
                )));
            }
        }
        Ok(bytes)
    }
}

impl Reencode for Indices<'_> {
    type Error = Apart;

    fn type_index(&mut self, ty: u32) -> Reencoded<u32> {
        known(self.types.get(ty as usize))
    }

    fn function_index(&mut self, function: u32) -> Reencoded<u32> {
        self.item(Kind::Function, function)
    }

    fn table_index(&mut self, table: u32) -> Reencoded<u32> {
        self.item(Kind::Table, table)
    }

    fn memory_index(&mut self, memory: u32) -> Reencoded<u32> {
        self.item(Kind::Memory, memory)
    }

    fn global_index(&mut self, global: u32) -> Reencoded<u32> {
        self.item(Kind::Global, global)
    }

    fn element_index(&mut self, element: u32) -> Reencoded<u32> {
        Ok(self.elements.saturating_add(element))
    }

    fn data_index(&mut self, data: u32) -> Reencoded<u32> {
        Ok(self.data.saturating_add(data))
    }

    fn const_expr(&mut self, expression: wasmparser::ConstExpr<'_>) -> Reencoded<ConstExpr> {
        let constants = std::mem::take(&mut self.constants);
        let value = self.constant(&constants, &expression);
        self.constants = constants;
        Ok(ConstExpr::raw(value?))
    }
}
