//! What each instance of a snapshot does first.
//!
//! It opens the standard streams that the start had opened, so that their handles have the same numbers. Then it
//! runs the export [`RESUME`] of a core module, if there is one: the guest may draw its random seeds again. Both
//! are done by a core module at the end of the component.

use wasm_encoder_of_wit::{
    Alias, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection,
    ComponentExportKind, EntityType, ExportKind, Function, FunctionSection, ImportSection,
    InstanceSection, Module, ModuleArg, ModuleSection, StartSection, TypeSection, ValType,
};
use wasmparser::{
    CanonicalFunction, ComponentAlias, ComponentExternalKind, ExternalKind,
    Instance as CoreInstance, Parser, Payload,
};

use super::WithoutSnapshot;
use super::outside::Opened;
use crate::parts;

/// The export of a core module that instances of a snapshot run: a function without parameters and results.
const RESUME: &str = "hostler_resume";

/// What matters here of a component. The numbers count the items of their kind.
#[derive(Default)]
pub(super) struct Layout<'a> {
    /// Whether a core module has a start function.
    pub(super) starts: bool,
    /// The core module that exports [`RESUME`].
    pub(super) resume: Option<u32>,
    /// A canonical built-in that may make handles.
    builtin: Option<String>,
    /// The imported interfaces, and their numbers as instances.
    interfaces: Vec<(&'a str, u32)>,
    /// The numbers of the core instances that are made of the module `resume`.
    resumed: Vec<u32>,
    instances: u32,
    functions: u32,
    core_modules: u32,
    core_instances: u32,
    core_functions: u32,
}

impl<'a> Layout<'a> {
    pub(super) fn of(component: &'a [u8]) -> wasmparser::Result<Self> {
        let mut layout = Self::default();
        for part in parts(component) {
            layout.add(component, part?)?;
        }
        Ok(layout)
    }

    fn add(&mut self, component: &[u8], payload: Payload<'a>) -> wasmparser::Result<()> {
        match payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                self.add_module(component.get(unchecked_range).unwrap_or_default())?;
                self.core_modules += 1;
            }
            Payload::InstanceSection(instances) => {
                for instance in instances {
                    if let CoreInstance::Instantiate { module_index, .. } = instance?
                        && self.resume == Some(module_index)
                    {
                        self.resumed.push(self.core_instances);
                    }
                    self.core_instances += 1;
                }
            }
            Payload::ComponentInstanceSection(instances) => self.instances += instances.count(),
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    match alias? {
                        ComponentAlias::InstanceExport { kind, .. } => self.count(kind),
                        ComponentAlias::CoreInstanceExport {
                            kind: ExternalKind::Func | ExternalKind::FuncExact,
                            ..
                        } => self.core_functions += 1,
                        _ => {}
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    let function = function?;
                    match function {
                        CanonicalFunction::Lift { .. } => self.functions += 1,
                        _ => self.core_functions += 1,
                    }
                    if self.builtin.is_none() {
                        self.builtin = builtin(&function);
                    }
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    let import = import?;
                    let kind = import.ty.kind();
                    if kind == ComponentExternalKind::Instance {
                        self.interfaces.push((import.name.name, self.instances));
                    }
                    self.count(kind);
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    self.count(export?.kind);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_module(&mut self, module: &[u8]) -> wasmparser::Result<()> {
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::StartSection { .. } => self.starts = true,
                Payload::ExportSection(exports) => {
                    for export in exports {
                        if export?.name == RESUME {
                            self.resume.get_or_insert(self.core_modules);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: ComponentExternalKind) {
        match kind {
            ComponentExternalKind::Func => self.functions += 1,
            ComponentExternalKind::Instance => self.instances += 1,
            _ => {}
        }
    }

    /// Refuse a component that may have handles of its own: a snapshot does not have them.
    pub(super) fn refuse_handles(&self) -> Result<(), WithoutSnapshot> {
        match &self.builtin {
            None => Ok(()),
            Some(builtin) => Err(WithoutSnapshot::Refused(format!(
                "it uses `{builtin}`, and a snapshot does not have what that makes"
            ))),
        }
    }
}

/// The name of a canonical built-in other than those that every component has.
fn builtin(function: &CanonicalFunction) -> Option<String> {
    match function {
        CanonicalFunction::Lift { .. }
        | CanonicalFunction::Lower { .. }
        | CanonicalFunction::ResourceDrop { .. } => None,
        other => {
            let shown = format!("{other:?}");
            let end = shown.find([' ', '{', '(']).unwrap_or(shown.len());
            Some(shown[..end].to_owned())
        }
    }
}

/// Append to a snapshot what its instances do first.
pub(super) fn append(
    mut snapshot: Vec<u8>,
    streams: &[Opened],
) -> Result<Vec<u8>, WithoutSnapshot> {
    let layout = Layout::of(&snapshot)?;
    if streams.is_empty() && layout.resume.is_none() {
        return Ok(snapshot);
    }
    let (mut aliases, mut lowered) = (
        ComponentAliasSection::new(),
        CanonicalFunctionSection::new(),
    );
    // The numbers of the core functions that it calls: aliases come before what is lowered.
    let mut calls = Vec::new();
    if layout.resume.is_some() {
        let [instance] = *layout.resumed else {
            let reason = format!("the module that exports `{RESUME}` has not one instance");
            return Err(WithoutSnapshot::Refused(reason));
        };
        aliases.alias(Alias::CoreInstanceExport {
            instance,
            kind: ExportKind::Func,
            name: RESUME,
        });
        calls.push(layout.core_functions);
    }
    let resumes = calls.len();
    for (function, opened) in (layout.functions..).zip(streams) {
        let imported = layout.interfaces.iter();
        let found = imported
            .clone()
            .find(|(name, _)| **name == *opened.interface);
        let Some((_, instance)) = found else {
            let reason = format!("it does not import `{}` itself", opened.interface);
            return Err(WithoutSnapshot::Refused(reason));
        };
        aliases.alias(Alias::InstanceExport {
            instance: *instance,
            kind: ComponentExportKind::Func,
            name: opened.function,
        });
        lowered.lower(function, []);
        calls.push(layout.core_functions + u32::try_from(calls.len()).unwrap_or(u32::MAX));
    }
    let names: Vec<String> = (0..calls.len()).map(|index| index.to_string()).collect();
    let items = names.iter().zip(&calls);
    let mut instances = InstanceSection::new();
    instances
        .export_items(items.map(|(name, call)| (name.as_str(), ExportKind::Func, *call)))
        .instantiate(
            layout.core_modules,
            [("", ModuleArg::Instance(layout.core_instances))],
        );
    let mut end = Component::new();
    end.section(&aliases)
        .section(&lowered)
        .section(&ModuleSection(&first(&names, resumes)))
        .section(&instances);
    // All but the header is a list of sections.
    snapshot.extend(&end.finish()[Component::HEADER.len()..]);
    Ok(snapshot)
}

/// A core module whose start calls imported functions: first those that open streams, then the first
/// `resumes` ones.
fn first(names: &[String], resumes: usize) -> Module {
    let mut types = TypeSection::new();
    let [resumed, opens] = [0, 1];
    types.ty().function([], []);
    types.ty().function([], [ValType::I32]);
    let mut imports = ImportSection::new();
    for (index, name) in names.iter().enumerate() {
        let ty = if index < resumes { resumed } else { opens };
        imports.import("", name, EntityType::Function(ty));
    }
    let mut start = Function::new([]);
    let mut instructions = start.instructions();
    for (function, _) in (0..).zip(names).skip(resumes) {
        instructions.call(function).drop();
    }
    for (function, _) in (0..).zip(names).take(resumes) {
        instructions.call(function);
    }
    instructions.end();
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    functions.function(resumed);
    code.function(&start);
    let function_index = imports.len();
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&StartSection { function_index })
        .section(&code);
    module
}
