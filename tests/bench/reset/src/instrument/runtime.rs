//! The functions that mark, restore and check, in WebAssembly.

use wasm_encoder_of_wit::{BlockType, Function, HeapType, InstructionSink, MemArg, ValType};

use super::code::OVERLAP;

/// The most handles that one call may leave open. They have 8 bytes each, in one page.
const HANDLES_MAX: i32 = 8000;

/// What is added to the core module: the numbers of its items.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) block_bits: u32,
    /// The guest's memory, and those that are added.
    pub(super) memory: u32,
    pub(super) map: u32,
    pub(super) image: u32,
    /// Functions.
    pub(super) mark: u32,
    pub(super) seal: u32,
    pub(super) reset: u32,
    pub(super) check: u32,
    pub(super) digest: u32,
    pub(super) made: u32,
    pub(super) dropped: u32,
    pub(super) release: u32,
    pub(super) spoil: u32,
    pub(super) grow: u32,
    /// Whether the instance has started, and may be called.
    pub(super) sealed: u32,
    /// Whether the call did what no reset restores.
    pub(super) stale: u32,
    /// The pages of the memory after the start.
    pub(super) pages: u32,
    /// The number of handles that the call has made.
    pub(super) handles: u32,
    /// The pages that the guest knows of.
    pub(super) size: u32,
    /// A table that grows to tell the host that the instance must be dropped.
    pub(super) signal: u32,
    /// Whether an instance whose memory has grown is restored, too.
    pub(super) keeps_growth: bool,
    /// The globals that change, and those that keep what they had after the start.
    pub(super) globals: Vec<(u32, u32, ValType)>,
    /// The functions that drop a handle, by the number of the resource.
    pub(super) drops: Vec<u32>,
    /// Whether globals are restored.
    pub(super) restores_globals: bool,
}

impl Added {
    /// Where the list of handles begins in the map's memory: behind the map.
    fn list(&self) -> u64 {
        1 << (32 - self.block_bits)
    }

    /// The pages of the map's memory.
    pub(super) fn map_pages(&self) -> u64 {
        (self.list() >> 16) + 1
    }

    /// Mark a range: `(address, length)`.
    pub(super) fn mark_function(&self) -> Function {
        const ADDRESS: u32 = 0;
        const LENGTH: u32 = 1;
        const LAST: u32 = 2;
        let bits = self.block_bits.cast_signed();
        let mut function = Function::new([(1, ValType::I32)]);
        function
            .instructions()
            .local_get(LENGTH)
            .i32_eqz()
            .if_(BlockType::Empty)
            .return_()
            .end()
            .local_get(ADDRESS)
            .local_get(LENGTH)
            .i32_add()
            .i32_const(1)
            .i32_sub()
            .i32_const(bits)
            .i32_shr_u()
            .local_set(LAST)
            .local_get(ADDRESS)
            .i32_const(bits)
            .i32_shr_u()
            .local_set(ADDRESS)
            .loop_(BlockType::Empty)
            .local_get(ADDRESS)
            .i32_const(1)
            .i32_store8(self.in_map(0, 0))
            .local_get(ADDRESS)
            .i32_const(1)
            .i32_add()
            .local_tee(ADDRESS)
            .local_get(LAST)
            .i32_le_u()
            .br_if(0)
            .end()
            .end();
        function
    }

    /// Copy the marked blocks from one memory to the other, and clear the map. Uses the locals 0, 1 and 2.
    fn copy(&self, sink: &mut InstructionSink<'_>, from: u32, to: u32) {
        const BLOCK: u32 = 0;
        const END: u32 = 1;
        const FIRST: u32 = 2;
        let bits = self.block_bits.cast_signed();
        sink.i32_const(0)
            .local_set(BLOCK)
            .memory_size(self.memory)
            .i32_const(16 - bits)
            .i32_shl()
            .local_set(END)
            .block(BlockType::Empty)
            .loop_(BlockType::Empty)
            .local_get(BLOCK)
            .local_get(END)
            .i32_ge_u()
            .br_if(1)
            // Sixteen at a time, while none is marked.
            .local_get(BLOCK)
            .v128_load(self.in_map(0, 0))
            .v128_any_true()
            .i32_eqz()
            .if_(BlockType::Empty)
            .local_get(BLOCK)
            .i32_const(16)
            .i32_add()
            .local_set(BLOCK)
            .br(1)
            .end()
            .local_get(BLOCK)
            .i32_load8_u(self.in_map(0, 0))
            .i32_eqz()
            .if_(BlockType::Empty)
            .local_get(BLOCK)
            .i32_const(1)
            .i32_add()
            .local_set(BLOCK)
            .br(1)
            .end()
            // All that are marked without a gap.
            .local_get(BLOCK)
            .local_set(FIRST)
            .loop_(BlockType::Empty)
            .local_get(BLOCK)
            .i32_const(0)
            .i32_store8(self.in_map(0, 0))
            .local_get(BLOCK)
            .i32_const(1)
            .i32_add()
            .local_tee(BLOCK)
            .local_get(END)
            .i32_lt_u()
            .if_(BlockType::Empty)
            .local_get(BLOCK)
            .i32_load8_u(self.in_map(0, 0))
            .br_if(1)
            .end()
            .end()
            .local_get(FIRST)
            .i32_const(bits)
            .i32_shl()
            .local_tee(FIRST)
            .local_get(FIRST)
            .local_get(BLOCK)
            .i32_const(bits)
            .i32_shl()
            .local_get(FIRST)
            .i32_sub()
            .i32_const(OVERLAP)
            .i32_const(0)
            .local_get(BLOCK)
            .local_get(END)
            .i32_lt_u()
            .select()
            .i32_add()
            .memory_copy(to, from)
            .br(0)
            .end()
            .end();
    }

    /// The start has ended: keep what it has written, and the globals.
    pub(super) fn seal_function(&self) -> Function {
        let mut function = Function::new([(3, ValType::I32)]);
        let mut sink = function.instructions();
        sink.memory_size(self.memory)
            .memory_size(self.image)
            .i32_sub()
            .memory_grow(self.image)
            .i32_const(-1)
            .i32_eq()
            .if_(BlockType::Empty)
            .unreachable()
            .end();
        self.copy(&mut sink, self.memory, self.image);
        for (global, kept, _) in &self.globals {
            sink.global_get(*global).global_set(*kept);
        }
        sink.memory_size(self.memory)
            .global_set(self.pages)
            .i32_const(0)
            .global_set(self.handles)
            .i32_const(0)
            .global_set(self.stale)
            .i32_const(1)
            .global_set(self.sealed)
            .end();
        function
    }

    /// Restore the memory and the globals. An instance that cannot be restored must not be called again. The host
    /// sees it by a table that has grown.
    pub(super) fn reset_function(&self) -> Function {
        let mut function = Function::new([(3, ValType::I32)]);
        let mut sink = function.instructions();
        sink.global_get(self.stale);
        if !self.keeps_growth {
            sink.memory_size(self.memory)
                .global_get(self.pages)
                .i32_ne()
                .i32_or();
        }
        sink.if_(BlockType::Empty)
            .i32_const(0)
            .global_set(self.sealed)
            .ref_null(HeapType::FUNC)
            .i32_const(1)
            .table_grow(self.signal)
            .drop()
            .return_()
            .end();
        self.copy(&mut sink, self.image, self.memory);
        if self.restores_globals {
            for (global, kept, _) in &self.globals {
                sink.global_get(*kept).global_set(*global);
            }
        }
        sink.end();
        function
    }

    /// The number of differences to the state after the start.
    pub(super) fn check_function(&self) -> Function {
        const PLACE: u32 = 0;
        const COUNT: u32 = 1;
        let word = |memory_index| MemArg {
            offset: 0,
            align: 0,
            memory_index,
        };
        let mut function = Function::new([(2, ValType::I32)]);
        let mut sink = function.instructions();
        sink.memory_size(self.memory)
            .memory_size(self.image)
            .i32_ne()
            .if_(BlockType::Empty)
            .i32_const(-1)
            .return_()
            .end()
            .loop_(BlockType::Empty)
            .local_get(PLACE)
            .i64_load(word(self.memory))
            .local_get(PLACE)
            .i64_load(word(self.image))
            .i64_ne()
            .local_get(COUNT)
            .i32_add()
            .local_set(COUNT)
            .local_get(PLACE)
            .i32_const(8)
            .i32_add()
            .local_tee(PLACE)
            .memory_size(self.memory)
            .i32_const(16)
            .i32_shl()
            .i32_lt_u()
            .br_if(0)
            .end()
            .i32_const(0)
            .local_set(PLACE)
            .loop_(BlockType::Empty)
            .local_get(PLACE)
            .i32_load8_u(self.in_map(0, 0))
            .local_get(COUNT)
            .i32_add()
            .local_set(COUNT)
            .local_get(PLACE)
            .i32_const(1)
            .i32_add()
            .local_tee(PLACE)
            .memory_size(self.memory)
            .i32_const(16 - self.block_bits.cast_signed())
            .i32_shl()
            .i32_lt_u()
            .br_if(0)
            .end();
        for (global, kept, ty) in &self.globals {
            for half in halves(*ty) {
                bits_of(&mut sink, *global, *ty, half);
                bits_of(&mut sink, *kept, *ty, half);
                sink.i64_ne().local_get(COUNT).i32_add().local_set(COUNT);
            }
        }
        sink.local_get(COUNT)
            .global_get(self.handles)
            .i32_add()
            .end();
        function
    }

    /// A number that depends on all bytes of the memory, on its size, and on the globals.
    pub(super) fn digest_function(&self) -> Function {
        const PLACE: u32 = 0;
        const DIGEST: u32 = 1;
        const FACTOR: i64 = 0x0100_0000_01b3;
        let mut function = Function::new([(1, ValType::I32), (1, ValType::I64)]);
        let mut sink = function.instructions();
        let add = |sink: &mut InstructionSink<'_>| {
            sink.local_get(DIGEST)
                .i64_xor()
                .i64_const(FACTOR)
                .i64_mul()
                .i64_const(29)
                .i64_rotl()
                .local_set(DIGEST);
        };
        self.guest_pages(&mut sink);
        sink.i64_extend_i32_u();
        add(&mut sink);
        sink.loop_(BlockType::Empty)
            .local_get(PLACE)
            .i64_load(MemArg {
                offset: 0,
                align: 0,
                memory_index: self.memory,
            });
        add(&mut sink);
        sink.local_get(PLACE)
            .i32_const(8)
            .i32_add()
            .local_tee(PLACE);
        self.guest_pages(&mut sink);
        sink.i32_const(16).i32_shl().i32_lt_u().br_if(0).end();
        for (global, _, ty) in &self.globals {
            for half in halves(*ty) {
                bits_of(&mut sink, *global, *ty, half);
                add(&mut sink);
            }
        }
        sink.local_get(DIGEST).end();
        function
    }

    /// Push the pages that the guest knows of.
    fn guest_pages(&self, sink: &mut InstructionSink<'_>) {
        match self.keeps_growth {
            true => sink.global_get(self.size),
            false => sink.memory_size(self.memory),
        };
    }

    /// `memory.grow` for the guest: the pages of an earlier call are there already.
    pub(super) fn grow_function(&self) -> Function {
        const DELTA: u32 = 0;
        const MISSING: u32 = 1;
        let mut function = Function::new([(1, ValType::I32)]);
        function
            .instructions()
            .local_get(DELTA)
            .memory_size(self.memory)
            .global_get(self.size)
            .i32_sub()
            .i32_gt_u()
            .if_(BlockType::Empty)
            .local_get(DELTA)
            .memory_size(self.memory)
            .global_get(self.size)
            .i32_sub()
            .i32_sub()
            .local_tee(MISSING)
            .memory_grow(self.memory)
            .i32_const(-1)
            .i32_eq()
            .if_(BlockType::Empty)
            .i32_const(-1)
            .return_()
            .end()
            .local_get(MISSING)
            .memory_grow(self.image)
            .i32_const(-1)
            .i32_eq()
            .if_(BlockType::Empty)
            .unreachable()
            .end()
            .end()
            .global_get(self.size)
            .global_get(self.size)
            .local_get(DELTA)
            .i32_add()
            .global_set(self.size)
            .end();
        function
    }

    /// The call has a new handle: `(resource, handle)`.
    pub(super) fn made_function(&self) -> Function {
        let mut function = Function::new([]);
        let mut sink = function.instructions();
        sink.global_get(self.handles)
            .i32_const(HANDLES_MAX)
            .i32_ge_u()
            .if_(BlockType::Empty)
            .i32_const(1)
            .global_set(self.stale)
            .return_()
            .end();
        for (offset, local) in [(0, 0), (4, 1)] {
            sink.global_get(self.handles)
                .i32_const(3)
                .i32_shl()
                .local_get(local)
                .i32_store(self.in_map(self.list() + offset, 2));
        }
        sink.global_get(self.handles)
            .i32_const(1)
            .i32_add()
            .global_set(self.handles)
            .end();
        function
    }

    /// The call does what no reset restores.
    pub(super) fn spoil_function(&self) -> Function {
        let mut function = Function::new([]);
        function
            .instructions()
            .i32_const(1)
            .global_set(self.stale)
            .end();
        function
    }

    /// The call drops a handle: `(resource, handle)`. One that it has not made is missed by the next call.
    pub(super) fn dropped_function(&self) -> Function {
        const PLACE: u32 = 2;
        let mut function = Function::new([(1, ValType::I32)]);
        let mut sink = function.instructions();
        sink.global_get(self.handles)
            .local_set(PLACE)
            .loop_(BlockType::Empty)
            .local_get(PLACE)
            .i32_eqz()
            .if_(BlockType::Empty)
            .i32_const(1)
            .global_set(self.stale)
            .return_()
            .end()
            .local_get(PLACE)
            .i32_const(1)
            .i32_sub()
            .local_set(PLACE);
        for (offset, local) in [(0, 0), (4, 1)] {
            sink.local_get(PLACE)
                .i32_const(3)
                .i32_shl()
                .i32_load(self.in_map(self.list() + offset, 2))
                .local_get(local)
                .i32_ne()
                .br_if(0);
        }
        // The last one takes its place.
        sink.global_get(self.handles)
            .i32_const(1)
            .i32_sub()
            .global_set(self.handles)
            .local_get(PLACE)
            .i32_const(3)
            .i32_shl()
            .global_get(self.handles)
            .i32_const(3)
            .i32_shl()
            .i64_load(self.in_map(self.list(), 3))
            .i64_store(self.in_map(self.list(), 3))
            .end()
            .end();
        function
    }

    /// Drop the handles that the call has left open, the last one first.
    pub(super) fn release_function(&self) -> Function {
        let mut function = Function::new([]);
        let mut sink = function.instructions();
        sink.loop_(BlockType::Empty)
            .global_get(self.handles)
            .i32_eqz()
            .if_(BlockType::Empty)
            .return_()
            .end()
            .global_get(self.handles)
            .i32_const(1)
            .i32_sub()
            .global_set(self.handles);
        for (resource, drop) in (0..).zip(&self.drops) {
            for offset in [0, 4] {
                sink.global_get(self.handles)
                    .i32_const(3)
                    .i32_shl()
                    .i32_load(self.in_map(self.list() + offset, 2));
                if offset == 0 {
                    sink.i32_const(resource).i32_eq().if_(BlockType::Empty);
                }
            }
            sink.call(*drop).br(1).end();
        }
        sink.br(0).end().end();
        function
    }
}

/// The halves of a value that are compared one after the other.
fn halves(ty: ValType) -> std::ops::Range<u8> {
    0..if ty == ValType::V128 { 2 } else { 1 }
}

/// Push the bits of a global, or of half of it, as 64-bit number.
fn bits_of(sink: &mut InstructionSink<'_>, global: u32, ty: ValType, half: u8) {
    sink.global_get(global);
    match ty {
        ValType::I32 => sink.i64_extend_i32_u(),
        ValType::F32 => sink.i32_reinterpret_f32().i64_extend_i32_u(),
        ValType::F64 => sink.i64_reinterpret_f64(),
        ValType::V128 => sink.i64x2_extract_lane(half),
        _ => sink,
    };
}
