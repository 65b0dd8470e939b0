//! Rewrites a module of WASIp1 before it meets the adapter.
//!
//! Its `proc_exit` becomes an import of its own: the adapter passes on only whether the code is 0.
//!
//! Its memory stays in one piece. The adapter keeps its state in the memory of the module, and would grow it between two
//! growths of the module. But allocators such as Go's take all memory up to its end for theirs, and write over that
//! state. So the memory grows once, to all that it may have; the adapter gets its last pages, and the module grows into
//! the rest: `memory.size` becomes a counter, and `memory.grow` a function.

use std::convert::Infallible;

use wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as WASI;
use wasm_encoder_of_wit::reencode::{self, Reencode, utils};
use wasm_encoder_of_wit::{
    BlockType, CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, Instruction, InstructionSink, MemoryType, Module,
    SectionId, TypeSection, ValType,
};
use wasmparser::{
    CodeSectionReader, ExportSectionReader, FunctionSectionReader, GlobalSectionReader, Import,
    ImportSectionReader, Imports, Operator, Parser, Payload, TypeRef, TypeSectionReader,
};

type Error = reencode::Error<Infallible>;

/// The import that ends a program with any code, without its version.
pub const EXIT: &str = "hostler:program/exit";

/// The import that says how much memory a program may have, without its version.
pub const MEMORY: &str = "hostler:program/memory";

/// The imports as the module names them, and their functions.
const EXIT_VERSIONED: &str = "hostler:program/exit@1.0.0";
const EXIT_FUNCTION: &str = "exit";
const MEMORY_VERSIONED: &str = "hostler:program/memory@1.0.0";
const MEMORY_FUNCTION: &str = "pages";

/// What the adapter allocates: its stack and its state, a page each.
const PAGES_OF_ADAPTER: i32 = 2;

/// The names by which the adapter would find an allocator of the module.
const REALLOC: &str = "cabi_realloc";
const ALLOCATORS: [&str; 3] = [REALLOC, "canonical_abi_realloc", "cabi_realloc_adapter"];

/// The module that the adapter takes.
pub(super) fn rewritten(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut rewrite = Rewrite {
        memory: Memory::of(bytes)?,
    };
    let mut module = Module::new();
    rewrite.parse_core_module(&mut module, Parser::new(0), bytes)?;
    Ok(module.finish())
}

struct Rewrite {
    /// `None` = the memory stays as it is.
    memory: Option<Memory>,
}

/// The one memory of a module, and the numbers of what is added to it.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// In pages.
    initial: u32,
    maximum: Option<u32>,
    types: u32,
    imported_functions: u32,
    functions: u32,
    globals: u32,
}

/// The added types, after those of the module.
const PAGES_TYPE: u32 = 0;
const RESERVE_TYPE: u32 = 1;
const GROW_TYPE: u32 = 2;
const REALLOC_TYPE: u32 = 3;

impl Memory {
    /// That of a module, unless it has several or a strange one, or has an allocator for its adapter.
    fn of(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let mut found = Self::default();
        let (mut memories, mut is_plain) = (0, true);
        let pages = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        let types = u32::try_from(group?.types().len());
                        found.types = found.types.saturating_add(types.unwrap_or(u32::MAX));
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import?.ty {
                            TypeRef::Func(_) | TypeRef::FuncExact(_) => {
                                found.imported_functions += 1;
                            }
                            TypeRef::Global(_) => found.globals += 1,
                            TypeRef::Memory(_) => is_plain = false,
                            TypeRef::Table(_) | TypeRef::Tag(_) => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => found.functions = section.count(),
                Payload::GlobalSection(section) => {
                    found.globals = found.globals.saturating_add(section.count());
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        let memory = memory?;
                        is_plain &=
                            !memory.memory64 && !memory.shared && memory.page_size_log2.is_none();
                        memories += 1;
                        found.initial = pages(memory.initial);
                        found.maximum = memory.maximum.map(pages);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        is_plain &= !ALLOCATORS.contains(&export?.name);
                    }
                }
                _ => {}
            }
        }
        Ok((is_plain && memories == 1).then_some(found))
    }

    /// The number of an added type.
    fn added(&self, ty: u32) -> u32 {
        self.types.saturating_add(ty)
    }

    /// The number of the added import, after those of the module.
    fn pages(&self) -> u32 {
        self.imported_functions
    }

    /// The first of the added functions, after those of the module. A module may claim to have any number; it is
    /// parsed, and refused, later.
    fn reserve(&self) -> u32 {
        let functions = self.imported_functions.saturating_add(self.functions);
        functions.saturating_add(1)
    }

    fn grow(&self) -> u32 {
        self.reserve().saturating_add(1)
    }

    fn realloc(&self) -> u32 {
        self.reserve().saturating_add(2)
    }

    /// What the module takes for the size of its memory, in pages.
    fn size(&self) -> u32 {
        self.globals
    }

    /// How many pages that may become; 0: the memory has not grown yet.
    fn ceiling(&self) -> u32 {
        self.globals.saturating_add(1)
    }

    /// The address of the next allocation of the adapter.
    fn next(&self) -> u32 {
        self.globals.saturating_add(2)
    }

    fn function(locals: u32, code: impl FnOnce(&mut InstructionSink<'_>)) -> Function {
        let mut function = Function::new([(locals, ValType::I32)]);
        let mut instructions = function.instructions();
        code(&mut instructions);
        instructions.end();
        function
    }

    /// Grow the memory to all that it may have, the first time.
    fn reserve_code(&self) -> Function {
        let missing = 0;
        Self::function(1, |code| {
            code.global_get(self.ceiling());
            code.if_(BlockType::Empty).return_().end();
            code.call(self.pages()).memory_size(0).i32_sub();
            code.local_tee(missing).i32_const(0).i32_gt_s();
            code.if_(BlockType::Empty);
            code.local_get(missing).memory_grow(0).drop().end();
            code.memory_size(0).i32_const(PAGES_OF_ADAPTER).i32_sub();
            code.global_set(self.ceiling());
            code.global_get(self.ceiling()).global_get(self.size());
            code.i32_lt_s().if_(BlockType::Empty);
            // There is no room: the host must know why this traps.
            code.i32_const(PAGES_OF_ADAPTER).memory_grow(0).drop();
            code.unreachable().end();
            code.global_get(self.ceiling()).i32_const(16).i32_shl();
            code.global_set(self.next());
        })
    }

    /// `memory.grow`.
    fn grow_code(&self) -> Function {
        let (pages, before) = (0, 1);
        Self::function(1, |code| {
            code.call(self.reserve());
            code.global_get(self.size()).local_set(before);
            if let Some(maximum) = self.maximum {
                let maximum = maximum.max(self.initial).cast_signed();
                code.local_get(pages);
                code.i32_const(maximum).local_get(before).i32_sub();
                code.i32_gt_u().if_(BlockType::Empty);
                code.i32_const(-1).return_().end();
            }
            code.local_get(pages);
            code.global_get(self.ceiling()).local_get(before).i32_sub();
            code.i32_gt_u().if_(BlockType::Empty);
            // The host denies it.
            code.local_get(pages).memory_grow(0).return_().end();
            code.local_get(before).local_get(pages).i32_add();
            code.global_set(self.size());
            code.local_get(before);
        })
    }

    /// The allocator of the adapter, which never frees.
    fn realloc_code(&self) -> Function {
        let (length, at) = (3, 4);
        Self::function(1, |code| {
            code.call(self.reserve());
            code.global_get(self.next()).local_tee(at);
            code.local_get(length).i32_add();
            code.i32_const(15).i32_add().i32_const(-16).i32_and();
            code.global_set(self.next());
            code.global_get(self.next()).i32_const(1).i32_sub();
            code.i32_const(16).i32_shr_u().memory_size(0).i32_ge_u();
            code.if_(BlockType::Empty).unreachable().end();
            code.local_get(at);
        })
    }

    fn import(&self, imports: &mut ImportSection) {
        let ty = wasm_encoder_of_wit::EntityType::Function(self.added(PAGES_TYPE));
        imports.import(MEMORY_VERSIONED, MEMORY_FUNCTION, ty);
    }

    fn add_globals(&self, globals: &mut GlobalSection) {
        for initial in [self.initial, 0, 0] {
            let ty = GlobalType {
                val_type: ValType::I32,
                mutable: true,
                shared: false,
            };
            globals.global(ty, &ConstExpr::i32_const(initial.cast_signed()));
        }
    }
}

impl Rewrite {
    /// Add what a memory that stays in one piece needs.
    fn with_memory(&self, add: impl FnOnce(Memory)) -> Result<(), Error> {
        self.memory.map(add);
        Ok(())
    }
}

impl Reencode for Rewrite {
    type Error = Infallible;

    fn parse_imports(
        &mut self,
        section: &mut ImportSection,
        imports: Imports<'_>,
    ) -> Result<(), Error> {
        match imports {
            Imports::Single(at, import) if import.module == WASI && import.name == "proc_exit" => {
                let import = Import {
                    module: EXIT_VERSIONED,
                    name: EXIT_FUNCTION,
                    ..import
                };
                utils::parse_imports(self, section, Imports::Single(at, import))
            }
            other => utils::parse_imports(self, section, other),
        }
    }

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: TypeSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_type_section(self, types, section)?;
        if self.memory.is_some() {
            // In the order of their numbers.
            types.ty().function([], [ValType::I32]);
            types.ty().function([], []);
            types.ty().function([ValType::I32], [ValType::I32]);
            types.ty().function([ValType::I32; 4], [ValType::I32]);
        }
        Ok(())
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: ImportSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_import_section(self, imports, section)?;
        self.with_memory(|memory| memory.import(imports))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_function_section(self, functions, section)?;
        self.with_memory(|memory| {
            for ty in [RESERVE_TYPE, GROW_TYPE, REALLOC_TYPE] {
                functions.function(memory.added(ty));
            }
        })
    }

    fn parse_global_section(
        &mut self,
        globals: &mut GlobalSection,
        section: GlobalSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_global_section(self, globals, section)?;
        self.with_memory(|memory| memory.add_globals(globals))
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: ExportSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_export_section(self, exports, section)?;
        self.with_memory(|memory| {
            exports.export(REALLOC, ExportKind::Func, memory.realloc());
        })
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_code_section(self, code, section)?;
        self.with_memory(|memory| {
            code.function(&memory.reserve_code());
            code.function(&memory.grow_code());
            code.function(&memory.realloc_code());
        })
    }

    /// Sections that the module does not have.
    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        after: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Result<(), Error> {
        let Some(memory) = self.memory else {
            return Ok(());
        };
        if before == Some(SectionId::Function) && after != Some(SectionId::Import) {
            let mut imports = ImportSection::new();
            memory.import(&mut imports);
            module.section(&imports);
        }
        if before == Some(SectionId::Export) && after != Some(SectionId::Global) {
            let mut globals = GlobalSection::new();
            memory.add_globals(&mut globals);
            module.section(&globals);
        }
        Ok(())
    }

    fn function_index(&mut self, function: u32) -> Result<u32, Error> {
        let shift = |memory: Memory| u32::from(function >= memory.imported_functions);
        Ok(function.saturating_add(self.memory.map_or(0, shift)))
    }

    fn memory_type(&mut self, memory: wasmparser::MemoryType) -> Result<MemoryType, Error> {
        let ty = utils::memory_type(self, memory);
        Ok(match self.memory {
            // The function that grows it keeps to the maximum.
            Some(_) => MemoryType {
                maximum: None,
                ..ty
            },
            None => ty,
        })
    }

    fn instruction<'a>(&mut self, operator: Operator<'a>) -> Result<Instruction<'a>, Error> {
        match (self.memory, operator) {
            (Some(memory), Operator::MemorySize { .. }) => {
                Ok(Instruction::GlobalGet(memory.size()))
            }
            (Some(memory), Operator::MemoryGrow { .. }) => Ok(Instruction::Call(memory.grow())),
            (_, operator) => utils::instruction(self, operator),
        }
    }
}
