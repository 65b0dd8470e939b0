//! Rewrites functions: a mark before each instruction that writes.

use std::collections::HashMap;

use wasm_encoder_of_wit::reencode::{self, Reencode};
use wasm_encoder_of_wit::{Function, Instruction, MemArg, ValType};
use wasmparser::{FunctionBody, Operator};

use super::runtime::Added;
use super::{Options, Refused};

/// Bytes behind a marked block that are restored with it. A store marks the block of its first byte only, and it
/// may end this many bytes behind the block.
pub(super) const OVERLAP: i32 = 15;

macro_rules! stores {
    ($($operator:ident $value:ident)*) => {
        /// The instructions that write one value.
        pub const STORES: &[&str] = &[$(stringify!($operator)),*];

        fn store(operator: &Operator<'_>) -> Option<(&'static str, wasmparser::MemArg, ValType)> {
            Some(match operator {
                $(Operator::$operator { memarg, .. } => (stringify!($operator), *memarg, ValType::$value),)*
                _ => return None,
            })
        }
    };
}

stores! {
    I32Store I32
    I64Store I64
    F32Store F32
    F64Store F64
    I32Store8 I32
    I32Store16 I32
    I64Store8 I64
    I64Store16 I64
    I64Store32 I64
    V128Store V128
    V128Store8Lane V128
    V128Store16Lane V128
    V128Store32Lane V128
    V128Store64Lane V128
}

macro_rules! proposals {
    ($(@$proposal:ident $operator:ident $({ $($field:ident: $type:ty),* })? => $visit:ident ($($arity:tt)*))*) => {
        /// Every instruction with the proposal that it belongs to.
        pub const OPERATORS: &[(&str, &str)] = &[$((stringify!($proposal), stringify!($operator))),*];

        fn proposal(operator: &Operator<'_>) -> (&'static str, &'static str) {
            match operator {
                $(Operator::$operator { .. } => (stringify!($proposal), stringify!($operator)),)*
                _ => ("unknown", "unknown"),
            }
        }
    };
}

wasmparser::for_each_operator!(proposals);

/// The proposals whose instructions are all known here. What others add might write memory.
pub const PROPOSALS: &[&str] = &[
    "mvp",
    "sign_extension",
    "saturating_float_to_int",
    "bulk_memory",
    "reference_types",
    "simd",
    "relaxed_simd",
    "tail_call",
    "wide_arithmetic",
];

/// Instructions that change what no reset restores: tables, and segments.
pub const NOT_RESTORED: &[&str] = &[
    "TableSet",
    "TableGrow",
    "TableFill",
    "TableCopy",
    "TableInit",
    "ElemDrop",
    "DataDrop",
];

/// Rewrites functions, and replaces the functions that have wrappers.
pub(super) struct Rewriter<'p> {
    pub(super) options: Options,
    pub(super) added: &'p Added,
    /// The wrappers of imports.
    pub(super) wrapped: HashMap<u32, u32>,
}

impl Reencode for Rewriter<'_> {
    type Error = Refused;

    fn function_index(&mut self, function: u32) -> Result<u32, reencode::Error<Refused>> {
        Ok(self.wrapped.get(&function).copied().unwrap_or(function))
    }
}

/// The locals that are added to a function.
struct Locals {
    address: u32,
    length: u32,
    source: u32,
    values: [(ValType, u32); 5],
}

impl Locals {
    fn after(first: u32) -> Self {
        Self {
            address: first,
            length: first + 1,
            source: first + 2,
            values: [
                (ValType::I32, first + 3),
                (ValType::I64, first + 4),
                (ValType::F32, first + 5),
                (ValType::F64, first + 6),
                (ValType::V128, first + 7),
            ],
        }
    }

    fn types() -> [(u32, ValType); 5] {
        [
            (4, ValType::I32),
            (1, ValType::I64),
            (1, ValType::F32),
            (1, ValType::F64),
            (1, ValType::V128),
        ]
    }

    fn value(&self, ty: ValType) -> Result<u32, Refused> {
        let found = self.values.iter().find(|(known, _)| *known == ty);
        found.map(|(_, local)| *local).ok_or(Refused::Missing)
    }
}

impl Rewriter<'_> {
    /// A function that marks what it writes. It has so many parameters.
    pub(super) fn body(
        &mut self,
        parameters: usize,
        body: &FunctionBody<'_>,
    ) -> Result<Function, Refused> {
        let mut types = Vec::new();
        let mut count = u32::try_from(parameters).map_err(|_| Refused::Missing)?;
        for local in body.get_locals_reader()? {
            let (number, ty) = local?;
            count += number;
            types.push((number, self.val_type(ty)?));
        }
        let locals = Locals::after(count);
        if writes(body)? {
            types.extend(Locals::types());
        }
        let mut function = Function::new(types);
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let operator = operators.read()?;
            allow(&operator)?;
            if self.options.keeps_growth {
                match operator {
                    Operator::MemorySize { .. } => {
                        function.instruction(&Instruction::GlobalGet(self.added.size));
                        continue;
                    }
                    Operator::MemoryGrow { .. } => {
                        function.instruction(&Instruction::Call(self.added.grow));
                        continue;
                    }
                    _ => {}
                }
            }
            self.mark(&mut function, &locals, &operator)?;
            function.instruction(&self.instruction(operator)?);
        }
        Ok(function)
    }

    /// The mark before an instruction.
    fn mark(
        &self,
        function: &mut Function,
        locals: &Locals,
        operator: &Operator<'_>,
    ) -> Result<(), Refused> {
        if let Some((name, memarg, ty)) = store(operator) {
            if self.options.marks(name) {
                self.mark_store(function, locals, memarg, ty)?;
            }
            return Ok(());
        }
        let name = match operator {
            Operator::MemoryFill { .. } => "memory.fill",
            Operator::MemoryCopy { .. } => "memory.copy",
            Operator::MemoryInit { .. } => "memory.init",
            _ => return Ok(()),
        };
        if self.options.marks(name) {
            function
                .instructions()
                .local_set(locals.length)
                .local_set(locals.source)
                .local_tee(locals.address)
                .local_get(locals.length)
                .call(self.added.mark)
                .local_get(locals.address)
                .local_get(locals.source)
                .local_get(locals.length);
        }
        Ok(())
    }

    fn mark_store(
        &self,
        function: &mut Function,
        locals: &Locals,
        memarg: wasmparser::MemArg,
        ty: ValType,
    ) -> Result<(), Refused> {
        let value = locals.value(ty)?;
        function
            .instruction(&Instruction::LocalSet(value))
            .instruction(&Instruction::LocalTee(locals.address));
        if memarg.offset > 0 {
            // A sum that is too large begins again at 0: then the store itself traps.
            let offset = u32::try_from(memarg.offset).map_err(|_| Refused::Missing)?;
            function
                .instruction(&Instruction::I32Const(offset.cast_signed()))
                .instruction(&Instruction::I32Add);
        }
        function
            .instructions()
            .i32_const(self.added.block_bits.cast_signed())
            .i32_shr_u()
            .i32_const(1)
            .i32_store8(self.added.in_map(0, 0))
            .local_get(locals.address)
            .local_get(value);
        Ok(())
    }
}

/// Whether a function has an instruction that writes.
fn writes(body: &FunctionBody<'_>) -> Result<bool, Refused> {
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let operator = operators.read()?;
        let bulk = matches!(
            operator,
            Operator::MemoryFill { .. } | Operator::MemoryCopy { .. } | Operator::MemoryInit { .. }
        );
        if bulk || store(&operator).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuse what a reset would not restore.
fn allow(operator: &Operator<'_>) -> Result<(), Refused> {
    let (proposal, name) = proposal(operator);
    if NOT_RESTORED.contains(&name) {
        return Err(Refused::has(format!(
            "the instruction {name}, which no reset restores"
        )));
    }
    if !PROPOSALS.contains(&proposal) {
        return Err(Refused::has(format!(
            "the instruction {name} of {proposal}"
        )));
    }
    Ok(())
}

impl Added {
    /// The place in the map so many bytes behind the address.
    pub(super) fn in_map(&self, offset: u64, align: u32) -> MemArg {
        MemArg {
            offset,
            align,
            memory_index: self.map,
        }
    }
}
