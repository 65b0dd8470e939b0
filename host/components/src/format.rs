//! Checks the first bytes of a file and the lengths of its sections, before it is compiled.

use wasmtime::Engine;

use crate::error::Refusal;
use crate::program::is_program;

const MAGIC: &[u8] = b"\0asm";
const CORE_MODULE: &[u8] = &[1, 0, 0, 0];
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];
const HEADER: usize = 8;

/// Refuse a file that is neither a component nor a program, or is truncated.
pub(super) fn check(bytes: &[u8]) -> Result<(), Refusal> {
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(Refusal::Precompiled);
    }
    if bytes.is_empty() || !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        return Err(not_wasm(bytes));
    }
    let size = bytes.len() as u64;
    let truncated = |section_end| Err(Refusal::Truncated { section_end, size });
    match bytes.get(MAGIC.len()..HEADER) {
        None => return truncated(HEADER as u64),
        Some(COMPONENT | CORE_MODULE) => {}
        Some(_) => return Err(not_wasm(bytes)),
    }
    let mut at = HEADER as u64;
    while at < size {
        // A section: number, length, content.
        let section_end = match length(bytes, at + 1) {
            Some((length, start)) => start.saturating_add(length),
            None => at + 2,
        };
        if section_end > size {
            return truncated(section_end);
        }
        at = section_end;
    }
    match bytes[MAGIC.len()..].starts_with(CORE_MODULE) && !is_program(bytes) {
        true => Err(Refusal::CoreModule),
        false => Ok(()),
    }
}

/// The LEB128 number at `at`, and the offset after it.
fn length(bytes: &[u8], at: u64) -> Option<(u64, u64)> {
    const BYTES_MAX: usize = 5;
    let mut value = 0;
    let start = usize::try_from(at).ok()?;
    for (i, byte) in bytes.get(start..)?.iter().take(BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, at + i as u64 + 1));
        }
    }
    None
}

fn not_wasm(bytes: &[u8]) -> Refusal {
    let found = if bytes.is_empty() {
        "nothing (the file is empty)".to_owned()
    } else {
        let start: Vec<_> = bytes
            .iter()
            .take(HEADER)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("`{}`", start.join(" "))
    };
    Refusal::NotWasm(found)
}
