//! Puts the core module together: what it had, with marks, and what is added.

use std::collections::HashMap;

use wasm_encoder_of_wit::reencode::Reencode;
use wasm_encoder_of_wit::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    MemorySection, MemoryType, Module, RawSection, RefType, StartSection, TableSection, TableType,
    TypeSection, ValType,
};
use wasmparser::component_types::ResourceId;
use wasmparser::{
    Data, DataKind, Element, Export, ExternalKind, FuncType, FunctionBody, Global, Parser, Payload,
    Table, TypeRef,
};

use super::code::Rewriter;
use super::plan::{Import, Member, Plan};
use super::runtime::Added;
use super::wrappers::{self, Hooks};
use super::{Options, Refused};

/// The exports that are added: they end the start, compare the state with that after the start, and have a number
/// that depends on the state.
pub(super) const SEAL: &str = "reset:seal";
pub(super) const CHECK: &str = "reset:check";
pub(super) const DIGEST: &str = "reset:digest";

const MEMORY: &str = "reset:memory";

/// The exports that the other modules import: what wrappers call, in the order of [`Hooks`].
const HOOKS: [&str; 4] = ["reset:mark", "reset:made", "reset:dropped", "reset:spoil"];

/// The module of these imports.
pub(super) const MAIN: &str = "reset";

/// The parts of a core module.
#[derive(Default)]
struct Source<'a> {
    types: Vec<FuncType>,
    /// Of functions.
    imports: Vec<wasmparser::Import<'a>>,
    imported_tables: Vec<wasmparser::Import<'a>>,
    /// The types of all functions, imports first.
    functions: Vec<u32>,
    tables: Vec<Table<'a>>,
    memories: Vec<wasmparser::MemoryType>,
    globals: Vec<Global<'a>>,
    exports: Vec<Export<'a>>,
    start: Option<u32>,
    elements: Vec<Element<'a>>,
    data: Vec<Data<'a>>,
    bodies: Vec<FunctionBody<'a>>,
    names: Option<&'a [u8]>,
}

impl<'a> Source<'a> {
    fn of(module: &'a [u8]) -> Result<Self, Refused> {
        let mut source = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            source.add(payload?)?;
        }
        Ok(source)
    }

    fn add(&mut self, payload: Payload<'a>) -> Result<(), Refused> {
        match payload {
            Payload::TypeSection(types) => {
                let types = types.into_iter_err_on_gc_types();
                self.types = types.collect::<Result<_, _>>()?;
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    match import.ty {
                        TypeRef::Func(ty) => {
                            self.functions.push(ty);
                            self.imports.push(import);
                        }
                        TypeRef::Table(_) => self.imported_tables.push(import),
                        _ => return Err(Refused::has("a core module that imports other items")),
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                for ty in functions {
                    self.functions.push(ty?);
                }
            }
            Payload::TableSection(items) => self.tables = all(items)?,
            Payload::MemorySection(items) => self.memories = all(items)?,
            Payload::GlobalSection(items) => self.globals = all(items)?,
            Payload::ExportSection(items) => self.exports = all(items)?,
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(items) => self.elements = all(items)?,
            Payload::DataSection(items) => self.data = all(items)?,
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::TagSection(_) => return Err(Refused::has("a tag")),
            Payload::CustomSection(section) if section.name() == "name" => {
                self.names = Some(section.data());
            }
            _ => {}
        }
        Ok(())
    }

    fn no_other_imports(&self) -> Result<(), Refused> {
        match *self.imported_tables {
            [] => Ok(()),
            _ => Err(Refused::has("a memory and the table of another module")),
        }
    }

    /// The one memory, of 32-bit addresses.
    fn memory(&self) -> Result<wasmparser::MemoryType, Refused> {
        match *self.memories {
            [memory]
                if !memory.memory64
                    && !memory.shared
                    && memory.page_size_log2.is_none()
                    && memory.initial < 1 << 16 =>
            {
                Ok(memory)
            }
            _ => Err(Refused::has("no memory, several, or one of another kind")),
        }
    }

    fn ty(&self, function: u32) -> Result<&FuncType, Refused> {
        let ty = self.functions.get(function as usize);
        ty.and_then(|ty| self.types.get(*ty as usize))
            .ok_or(Refused::Missing)
    }
}

fn all<'a, T: wasmparser::FromReader<'a>>(
    items: wasmparser::SectionLimited<'a, T>,
) -> Result<Vec<T>, Refused> {
    Ok(items.into_iter().collect::<Result<_, _>>()?)
}

fn number(count: usize) -> Result<u32, Refused> {
    u32::try_from(count).map_err(|_| Refused::Missing)
}

/// The types of the functions that are added, behind those of the module.
const TYPES: [(usize, Option<ValType>); 5] = [
    (2, None),
    (0, None),
    (0, Some(ValType::I32)),
    (0, Some(ValType::I64)),
    (1, Some(ValType::I32)),
];

/// Of each added function: its type.
const FUNCTIONS: [u32; 10] = [0, 1, 1, 2, 3, 0, 0, 1, 1, 4];

/// A function around another one of the same type.
struct Wrapper {
    inner: u32,
    body: Function,
}

/// The core module of a component that can be reset.
pub(super) fn instrumented(plan: &Plan<'_>, options: Options) -> Result<Vec<u8>, Refused> {
    let source = Source::of(plan.main.bytes)?;
    source.no_other_imports()?;
    let memory = source.memory()?;
    let drops = drops(&source, plan)?;
    let added = added(&source, &drops, options)?;
    let drops: Vec<ResourceId> = drops.iter().map(|(resource, _)| *resource).collect();
    let hooks = Hooks {
        options,
        mark: added.mark,
        made: added.made,
        dropped: added.dropped,
        spoil: added.spoil,
        drops: &drops,
    };

    let mut wrappers = Vec::new();
    let mut wrapped = HashMap::new();
    let first_wrapper = added.grow + 1;
    for (function, import) in (0..).zip(&source.imports) {
        let known = plan.main.imports.get(&(import.module, import.name));
        let known = known.ok_or(Refused::Missing)?;
        if let Some(body) = hooks.import(source.ty(function)?, function, known)? {
            wrapped.insert(function, first_wrapper + number(wrappers.len())?);
            wrappers.push(Wrapper {
                inner: function,
                body,
            });
        }
    }
    let mut rewriter = Rewriter {
        options,
        added: &added,
        wrapped,
    };

    let mut exports = ExportSection::new();
    for export in &source.exports {
        let index = match (export.kind, plan.exports.get(export.name)) {
            (ExternalKind::Func, Some(role)) => {
                let inner = rewriter.function_index(export.index)?;
                let body =
                    wrappers::export(source.ty(export.index)?, &added, options, inner, *role);
                wrappers.push(Wrapper {
                    inner: export.index,
                    body,
                });
                first_wrapper + number(wrappers.len() - 1)?
            }
            (ExternalKind::Func, None) => rewriter.function_index(export.index)?,
            _ => export.index,
        };
        exports.export(export.name, rewriter.export_kind(export.kind)?, index);
    }
    exports
        .export(SEAL, ExportKind::Func, added.seal)
        .export(CHECK, ExportKind::Func, added.check)
        .export(DIGEST, ExportKind::Func, added.digest)
        .export(MEMORY, ExportKind::Memory, added.memory);
    for (name, function) in HOOKS
        .iter()
        .zip([added.mark, added.made, added.dropped, added.spoil])
    {
        exports.export(name, ExportKind::Func, function);
    }

    let mut types = TypeSection::new();
    for ty in &source.types {
        let ty = rewriter.func_type(ty.clone())?;
        types.ty().func_type(&ty);
    }
    for (parameters, result) in TYPES {
        types.ty().function(vec![ValType::I32; parameters], result);
    }

    let mut imports = ImportSection::new();
    for import in &source.imports {
        let ty = rewriter.entity_type(import.ty)?;
        imports.import(import.module, import.name, ty);
    }

    let mut functions = FunctionSection::new();
    for ty in &source.functions[source.imports.len()..] {
        functions.function(*ty);
    }
    let first_type = number(source.types.len())?;
    for ty in FUNCTIONS {
        functions.function(first_type + ty);
    }
    for wrapper in &wrappers {
        functions.function(source.functions[wrapper.inner as usize]);
    }

    let mut tables = TableSection::new();
    for table in &source.tables {
        rewriter.parse_table(&mut tables, table.clone())?;
    }
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: 0,
        maximum: None,
        shared: false,
    });

    let mut memories = MemorySection::new();
    let plain = |minimum, maximum| MemoryType {
        minimum,
        maximum,
        memory64: false,
        shared: false,
        page_size_log2: None,
    };
    memories
        .memory(rewriter.memory_type(memory)?)
        .memory(plain(added.map_pages(), None))
        .memory(plain(memory.initial, memory.maximum));

    let mut globals = GlobalSection::new();
    for global in &source.globals {
        rewriter.parse_global(&mut globals, global.clone())?;
    }
    let changing = |val_type| GlobalType {
        val_type,
        mutable: true,
        shared: false,
    };
    for _ in added.sealed..=added.handles {
        globals.global(changing(ValType::I32), &ConstExpr::i32_const(0));
    }
    let pages = i32::try_from(memory.initial).map_err(|_| Refused::Missing)?;
    globals.global(changing(ValType::I32), &ConstExpr::i32_const(pages));
    for (_, _, ty) in &added.globals {
        globals.global(changing(*ty), &zero(*ty)?);
    }

    let mut elements = ElementSection::new();
    for element in &source.elements {
        rewriter.parse_element(&mut elements, element.clone())?;
    }

    let mut data = DataSection::new();
    for segment in &source.data {
        rewriter.parse_data(&mut data, segment.clone())?;
    }
    // The image begins with the same bytes.
    for segment in &source.data {
        if let DataKind::Active { offset_expr, .. } = &segment.kind {
            let offset = rewriter.const_expr(offset_expr.clone())?;
            data.active(added.image, &offset, segment.data.iter().copied());
        }
    }

    let mut code = CodeSection::new();
    for (function, body) in (number(source.imports.len())?..).zip(&source.bodies) {
        let parameters = source.ty(function)?.params().len();
        code.function(&rewriter.body(parameters, body)?);
    }
    for function in [
        added.mark_function(),
        added.seal_function(),
        added.reset_function(),
        added.check_function(),
        added.digest_function(),
        added.made_function(),
        added.dropped_function(),
        added.release_function(),
        added.spoil_function(),
        added.grow_function(),
    ] {
        code.function(&function);
    }
    for wrapper in &wrappers {
        code.function(&wrapper.body);
    }

    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&tables)
        .section(&memories)
        .section(&globals)
        .section(&exports);
    if let Some(start) = source.start {
        module.section(&StartSection {
            function_index: rewriter.function_index(start)?,
        });
    }
    module
        .section(&elements)
        .section(&DataCountSection { count: data.len() })
        .section(&code)
        .section(&data);
    if let Some(names) = source.names {
        let mut section = vec![4];
        section.extend(b"name");
        section.extend(names);
        module.section(&RawSection {
            id: 0,
            data: &section,
        });
    }
    Ok(module.finish())
}

/// A module that fills the table of the main one, with wrappers around what it puts there.
pub(super) fn patched(
    plan: &Plan<'_>,
    member: &Member<'_>,
    options: Options,
) -> Result<Vec<u8>, Refused> {
    let source = Source::of(member.bytes)?;
    let has_state = !source.bodies.is_empty()
        || !source.globals.is_empty()
        || !source.tables.is_empty()
        || !source.data.is_empty()
        || !source.exports.is_empty();
    if has_state {
        return Err(Refused::has(
            "a second core module that does more than to fill a table",
        ));
    }
    let main = Source::of(plan.main.bytes)?;
    let drops: Vec<_> = drops(&main, plan)?
        .iter()
        .map(|(resource, _)| *resource)
        .collect();
    let first = number(source.imports.len())?;
    let hooks = Hooks {
        options,
        mark: first,
        made: first + 1,
        dropped: first + 2,
        spoil: first + 3,
        drops: &drops,
    };
    let added = added(&main, &[], options)?;
    let mut rewriter = Rewriter {
        options,
        added: &added,
        wrapped: HashMap::new(),
    };

    let mut types = TypeSection::new();
    for ty in &source.types {
        let ty = rewriter.func_type(ty.clone())?;
        types.ty().func_type(&ty);
    }
    let pair = number(source.types.len())?;
    types.ty().function([ValType::I32; 2], []);
    types.ty().function([], []);
    let mut imports = ImportSection::new();
    for import in source.imports.iter().chain(&source.imported_tables) {
        let ty = rewriter.entity_type(import.ty)?;
        imports.import(import.module, import.name, ty);
    }
    for (name, ty) in HOOKS.iter().zip([pair, pair, pair, pair + 1]) {
        imports.import(MAIN, name, EntityType::Function(ty));
    }
    let memory = rewriter.memory_type(main.memory()?)?;
    imports.import(MAIN, MEMORY, EntityType::Memory(memory));
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for (function, import) in (0..).zip(&source.imports) {
        let known = member.imports.get(&(import.module, import.name));
        let known = known.ok_or(Refused::Missing)?;
        if let Some(body) = hooks.import(source.ty(function)?, function, known)? {
            let wrapper = hooks.spoil + 1 + functions.len();
            rewriter.wrapped.insert(function, wrapper);
            functions.function(source.functions[function as usize]);
            code.function(&body);
        }
    }
    let mut elements = ElementSection::new();
    for element in &source.elements {
        rewriter.parse_element(&mut elements, element.clone())?;
    }
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions);
    // An import: the module has no function.
    if let Some(start) = source.start {
        module.section(&StartSection {
            function_index: rewriter.function_index(start)?,
        });
    }
    module.section(&elements).section(&code);
    Ok(module.finish())
}

/// The numbers of what is added.
fn added(
    source: &Source<'_>,
    drops: &[(ResourceId, u32)],
    options: Options,
) -> Result<Added, Refused> {
    let first_function = number(source.functions.len())?;
    let first_global = number(source.globals.len())?;
    let size = first_global + 4;
    let mut globals = vec![(size, size + 1, ValType::I32)];
    for (index, global) in (0..).zip(&source.globals) {
        if global.ty.mutable {
            let ty = match global.ty.content_type {
                wasmparser::ValType::I32 => ValType::I32,
                wasmparser::ValType::I64 => ValType::I64,
                wasmparser::ValType::F32 => ValType::F32,
                wasmparser::ValType::F64 => ValType::F64,
                wasmparser::ValType::V128 => ValType::V128,
                wasmparser::ValType::Ref(_) => {
                    return Err(Refused::has("a global with a reference"));
                }
            };
            globals.push((index, size + 1 + number(globals.len())?, ty));
        }
    }
    Ok(Added {
        block_bits: options.block_bits,
        memory: 0,
        map: 1,
        image: 2,
        mark: first_function,
        seal: first_function + 1,
        reset: first_function + 2,
        check: first_function + 3,
        digest: first_function + 4,
        made: first_function + 5,
        dropped: first_function + 6,
        release: first_function + 7,
        spoil: first_function + 8,
        grow: first_function + 9,
        sealed: first_global,
        stale: first_global + 1,
        pages: first_global + 2,
        handles: first_global + 3,
        size,
        signal: number(source.tables.len())?,
        keeps_growth: options.keeps_growth,
        globals,
        drops: drops.iter().map(|(_, function)| *function).collect(),
        restores_globals: options.marks("globals"),
    })
}

/// The imports that drop handles.
fn drops(source: &Source<'_>, plan: &Plan<'_>) -> Result<Vec<(ResourceId, u32)>, Refused> {
    let mut drops = Vec::new();
    for (function, import) in (0..).zip(&source.imports) {
        if let Some(Import::Drop(resource)) = plan.main.imports.get(&(import.module, import.name)) {
            drops.push((*resource, function));
        }
    }
    Ok(drops)
}

fn zero(ty: ValType) -> Result<ConstExpr, Refused> {
    Ok(match ty {
        ValType::I32 => ConstExpr::i32_const(0),
        ValType::I64 => ConstExpr::i64_const(0),
        ValType::F32 => ConstExpr::f32_const(0.0_f32.into()),
        ValType::F64 => ConstExpr::f64_const(0.0_f64.into()),
        ValType::V128 => ConstExpr::v128_const(0),
        ValType::Ref(_) => return Err(Refused::Missing),
    })
}
