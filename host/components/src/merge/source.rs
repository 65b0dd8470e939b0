//! What a core module has.

use std::collections::HashMap;

use wasmparser::{
    CompositeInnerType, ConstExpr, Data, DataKind, Element, ElementItems, ElementKind,
    FunctionBody, Global, Import, KnownCustom, MemoryType, Name, Parser, Payload, Table, TypeRef,
};

use super::{ALL, Apart, KINDS, Kind, kind_of};

/// Bytes of a page, as a power of two.
const PAGE_LOG2: u32 = 16;

/// What a module writes to a table or a memory when an instance is made.
pub(super) struct Segment<'s, 'a> {
    pub(super) kind: Kind,
    /// The number of the table or memory in the module.
    pub(super) index: u32,
    pub(super) offset: &'s ConstExpr<'a>,
    /// Elements or bytes.
    pub(super) length: u64,
}

/// What a core module has.
#[derive(Default)]
pub(super) struct Source<'a> {
    pub(super) types: Vec<wasmparser::FuncType>,
    /// By their kind, in the order of their numbers.
    pub(super) imports: [Vec<Import<'a>>; KINDS],
    /// The types of its functions.
    pub(super) functions: Vec<u32>,
    pub(super) tables: Vec<Table<'a>>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) globals: Vec<Global<'a>>,
    pub(super) exports: HashMap<&'a str, (Kind, u32)>,
    /// A name of each item that it exports.
    pub(super) exported: HashMap<(Kind, u32), &'a str>,
    pub(super) start: Option<u32>,
    pub(super) elements: Vec<Element<'a>>,
    pub(super) data: Vec<Data<'a>>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
    pub(super) name: Option<&'a str>,
    /// Functions with names.
    pub(super) names: Vec<(u32, &'a str)>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// The module is invalid, or has items of a kind that is unknown here.
    pub(super) fn of(module: &'a [u8]) -> Result<Self, Apart> {
        let mut source = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            source.add(payload?)?;
        }
        Ok(source)
    }

    fn add(&mut self, payload: Payload<'a>) -> Result<(), Apart> {
        match payload {
            Payload::TypeSection(groups) => {
                for group in groups {
                    let group = group?;
                    if group.is_explicit_rec_group() {
                        return Err(Apart::Unknown("a group of types"));
                    }
                    for ty in group.into_types() {
                        let is_plain =
                            ty.is_final && ty.supertype_idx.is_none() && !ty.composite_type.shared;
                        match ty.composite_type.inner {
                            CompositeInnerType::Func(ty) if is_plain => self.types.push(ty),
                            _ => return Err(Apart::Unknown("a type that is no plain function")),
                        }
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    let kind = match import.ty {
                        TypeRef::Func(_) => Kind::Function,
                        TypeRef::Table(_) => Kind::Table,
                        TypeRef::Memory(_) => Kind::Memory,
                        TypeRef::Global(_) => Kind::Global,
                        TypeRef::Tag(_) | TypeRef::FuncExact(_) => {
                            return Err(Apart::Unknown("an import of another kind"));
                        }
                    };
                    self.imports[kind as usize].push(import);
                }
            }
            Payload::FunctionSection(items) => self.functions = all(items)?,
            Payload::TableSection(items) => self.tables = all(items)?,
            Payload::MemorySection(items) => self.memories = all(items)?,
            Payload::GlobalSection(items) => self.globals = all(items)?,
            Payload::ElementSection(items) => self.elements = all(items)?,
            Payload::DataSection(items) => self.data = all(items)?,
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    let item = (kind_of(export.kind)?, export.index);
                    self.exports.insert(export.name, item);
                    self.exported.insert(item, export.name);
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::TagSection(_) => return Err(Apart::Unknown("a tag")),
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(names) = section.as_known() {
                    self.add_names(names);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Names are for backtraces. A section that is damaged has none.
    fn add_names(&mut self, names: wasmparser::NameSectionReader<'a>) {
        for name in names.into_iter().map_while(Result::ok) {
            match name {
                Name::Module { name, .. } => self.name = Some(name),
                Name::Function(names) => {
                    let names = names.into_iter().map_while(Result::ok);
                    self.names
                        .extend(names.map(|naming| (naming.index, naming.name)));
                }
                _ => {}
            }
        }
    }

    /// All imports, with their numbers.
    pub(super) fn imported(&self) -> impl Iterator<Item = (Kind, u32, &Import<'a>)> {
        let of = |kind: Kind| (0..).zip(&self.imports[kind as usize]);
        ALL.into_iter()
            .flat_map(move |kind| of(kind).map(move |(index, import)| (kind, index, import)))
    }

    /// What it writes to tables and memories when an instance is made.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment<'_, 'a>> {
        let elements = self.elements.iter().filter_map(|element| {
            let ElementKind::Active {
                table_index,
                offset_expr,
            } = &element.kind
            else {
                return None;
            };
            let length = match &element.items {
                ElementItems::Functions(items) => items.count(),
                ElementItems::Expressions(_, items) => items.count(),
            };
            Some(Segment {
                kind: Kind::Table,
                index: table_index.unwrap_or_default(),
                offset: offset_expr,
                length: length.into(),
            })
        });
        let data = self.data.iter().filter_map(|data| match &data.kind {
            DataKind::Active {
                memory_index,
                offset_expr,
            } => Some(Segment {
                kind: Kind::Memory,
                index: *memory_index,
                offset: offset_expr,
                length: data.data.len() as u64,
            }),
            DataKind::Passive => None,
        });
        elements.chain(data)
    }

    /// The place of an item among those that the module defines.
    fn own(&self, kind: Kind, index: u32) -> Option<usize> {
        (index as usize).checked_sub(self.imports[kind as usize].len())
    }

    /// A global that it defines.
    pub(super) fn global(&self, index: u32) -> Option<&Global<'a>> {
        self.globals.get(self.own(Kind::Global, index)?)
    }

    /// The fewest elements or bytes of a table or a memory that it defines.
    pub(super) fn least(&self, kind: Kind, index: u32) -> Option<u64> {
        let index = self.own(kind, index)?;
        match kind {
            Kind::Table => Some(self.tables.get(index)?.ty.initial),
            Kind::Memory => {
                let memory = self.memories.get(index)?;
                let page = 1_u64.checked_shl(memory.page_size_log2.unwrap_or(PAGE_LOG2))?;
                memory.initial.checked_mul(page)
            }
            Kind::Function | Kind::Global => None,
        }
    }

    /// The number of its functions and globals, those that it imports included.
    pub(super) fn items(&self) -> usize {
        let imports: usize = self.imports.iter().map(Vec::len).sum();
        imports + self.functions.len() + self.globals.len()
    }

    /// The number of items of a kind that it defines.
    pub(super) fn defined(&self, kind: Kind) -> usize {
        match kind {
            Kind::Function => self.functions.len(),
            Kind::Table => self.tables.len(),
            Kind::Memory => self.memories.len(),
            Kind::Global => self.globals.len(),
        }
    }
}

fn all<'a, T: wasmparser::FromReader<'a>>(
    items: wasmparser::SectionLimited<'a, T>,
) -> Result<Vec<T>, Apart> {
    Ok(items.into_iter().collect::<Result<_, _>>()?)
}
