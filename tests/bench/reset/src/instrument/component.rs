//! Writes the component around its instrumented core module.

use std::collections::HashMap;

use wasm_encoder_of_wit::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder_of_wit::{
    Alias, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection,
    ComponentExportKind, ComponentExportSection, ComponentTypeSection, ComponentValType,
    EntityType, ExportKind, FunctionSection, ImportSection, InstanceSection, Module, ModuleArg,
    ModuleSection, PrimitiveValType, RawSection, StartSection, TypeSection,
};
use wasmparser::{Instance, InstanceSectionReader, Payload, Validator, WasmFeatures};

use super::module::{self, SEAL};
use super::plan::Plan;
use super::{Options, Refused};
use crate::sandbox::compile::parts;

/// The functions that are added: the number of differences to the state after the start, and a number that depends
/// on the state.
pub const CHECK: [&str; 2] = ["reset-check", "reset-digest"];

/// The component, with an instance that is reset after each call.
///
/// # Errors
/// A reset would not restore all of its state.
pub fn instrumented(component: &[u8], options: Options) -> Result<Vec<u8>, Refused> {
    let plan = Plan::of(component)?;
    let mut modules = HashMap::new();
    modules.insert(plan.main.module, module::instrumented(&plan, options)?);
    for other in &plan.others {
        modules.insert(other.module, module::patched(&plan, other, options)?);
    }
    let mut written = Component::new();
    let mut module = 0;
    for part in parts(component) {
        let part = part?;
        let Some((id, range)) = part.as_section() else {
            continue;
        };
        let mut data = component.get(range).ok_or(Refused::Missing)?;
        match part {
            Payload::ModuleSection { .. } => {
                // One without an instance stays as it is.
                data = modules.get(&module).map_or(data, Vec::as_slice);
                module += 1;
                written.section(&RawSection { id, data });
            }
            Payload::InstanceSection(instances) => {
                written.section(&instances_of(&plan, instances)?);
            }
            _ => {
                written.section(&RawSection { id, data });
            }
        }
    }
    append(&mut written, &plan);
    let written = written.finish();
    Validator::new_with_features(WasmFeatures::all()).validate_all(&written)?;
    Ok(written)
}

/// The core instances. All but the main one import from it.
fn instances_of(
    plan: &Plan<'_>,
    instances: InstanceSectionReader<'_>,
) -> Result<InstanceSection, Refused> {
    let mut section = InstanceSection::new();
    for instance in instances {
        match instance? {
            Instance::Instantiate { module_index, args } => {
                let args = args
                    .iter()
                    .map(|arg| (arg.name, ModuleArg::Instance(arg.index)));
                let main = (module::MAIN, ModuleArg::Instance(plan.main.instance));
                let main = (module_index != plan.main.module).then_some(main);
                let args: Vec<_> = args.chain(main).collect();
                section.instantiate(module_index, args);
            }
            Instance::FromExports(exports) => {
                let mut items = Vec::new();
                for export in exports {
                    let kind = RoundtripReencoder.export_kind(export.kind);
                    let kind = kind.map_err(|_| Refused::Missing)?;
                    items.push((export.name, kind, export.index));
                }
                section.export_items(items);
            }
        }
    }
    Ok(section)
}

/// End the start, and export the checks. The numbers of items are those behind all others.
fn append(component: &mut Component, plan: &Plan<'_>) {
    let types = plan.types.as_ref();
    let (function, instance) = (types.function_count(), types.core_instance_count());
    let mut aliases = ComponentAliasSection::new();
    for name in [SEAL, module::CHECK, module::DIGEST] {
        aliases.alias(Alias::CoreInstanceExport {
            instance: plan.main.instance,
            kind: ExportKind::Func,
            name,
        });
    }
    component.section(&aliases);
    component.section(&ModuleSection(&starter()));
    let mut instances = InstanceSection::new();
    instances.export_items([("seal", ExportKind::Func, function)]);
    instances.instantiate(types.module_count(), [("", ModuleArg::Instance(instance))]);
    component.section(&instances);
    let mut ty = ComponentTypeSection::new();
    for result in [PrimitiveValType::U32, PrimitiveValType::U64] {
        ty.function()
            .params([] as [(&str, ComponentValType); 0])
            .result(Some(ComponentValType::Primitive(result)));
    }
    component.section(&ty);
    let (mut lifts, mut exports) = (
        CanonicalFunctionSection::new(),
        ComponentExportSection::new(),
    );
    // An export is an item, too: all are lifted before the first is exported.
    for (place, name) in (0..).zip(CHECK) {
        lifts.lift(
            function + 1 + place,
            types.component_type_count() + place,
            [],
        );
        let lifted = types.component_function_count() + place;
        exports.export(name, ComponentExportKind::Func, lifted, None);
    }
    component.section(&lifts).section(&exports);
}

/// A module that calls the function that it imports.
fn starter() -> Module {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let mut imports = ImportSection::new();
    imports.import("", "seal", EntityType::Function(0));
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&FunctionSection::new())
        .section(&StartSection { function_index: 0 })
        .section(&CodeSection::new());
    module
}
