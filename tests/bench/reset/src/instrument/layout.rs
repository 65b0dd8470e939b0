//! The sizes of values in memory, as the canonical ABI has them, and where handles are in them.

use wasmparser::PrimitiveValType;
use wasmparser::component_types::{ComponentDefinedType, ComponentValType, ResourceId};
use wasmparser::types::TypesRef;

use super::Refused;

/// The size and the alignment of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) size: u32,
    pub(super) align: u32,
}

impl Layout {
    const fn scalar(size: u32) -> Self {
        Self { size, align: size }
    }

    const PAIR: Self = Self { size: 8, align: 4 };

    /// Add a field. Returns its place.
    fn push(&mut self, field: Self) -> u32 {
        let place = self.size.next_multiple_of(field.align);
        self.size = place.saturating_add(field.size);
        self.align = self.align.max(field.align);
        place
    }

    fn end(mut self) -> Self {
        self.size = self.size.next_multiple_of(self.align);
        self
    }
}

/// Where handles of a value are that the guest owns.
#[derive(Clone, Debug)]
pub(super) enum Owned {
    /// A handle of this resource, so many bytes behind the begin of the value.
    At(u32, ResourceId),
    /// What is inside is there if the case of a variant has this number.
    Case {
        place: u32,
        /// Bytes of the number.
        size: u32,
        case: u32,
        inside: Vec<Self>,
    },
    /// There are some, in a list that begins so many bytes behind the begin of the value, if it is not empty.
    List(u32),
    /// There may be some that are not found.
    Somewhere,
}

/// Reads types.
pub(super) struct Reader<'t> {
    pub(super) types: TypesRef<'t>,
    /// Whether borrowed handles are found, too.
    pub(super) with_borrowed: bool,
}

impl Reader<'_> {
    /// The size of a value.
    pub(super) fn layout(&self, ty: ComponentValType) -> Result<Layout, Refused> {
        self.read(ty, 0, &mut Vec::new())
    }

    /// The handles in a value that the guest owns.
    pub(super) fn owned(&self, ty: ComponentValType) -> Result<Vec<Owned>, Refused> {
        let mut owned = Vec::new();
        self.read(ty, 0, &mut owned)?;
        Ok(owned)
    }

    /// The layout of a value at a place, and its handles.
    fn read(
        &self,
        ty: ComponentValType,
        place: u32,
        owned: &mut Vec<Owned>,
    ) -> Result<Layout, Refused> {
        use ComponentDefinedType as T;
        let id = match ty {
            ComponentValType::Primitive(primitive) => return primitive_layout(primitive),
            ComponentValType::Type(id) => id,
        };
        Ok(match &self.types[id] {
            T::Primitive(primitive) => primitive_layout(*primitive)?,
            T::Record(record) => self.fields(record.fields.values().copied(), place, owned)?,
            T::Tuple(tuple) => self.fields(tuple.types.iter().copied(), place, owned)?,
            T::Variant(variant) => {
                let cases: Vec<_> = variant.cases.values().map(|case| case.ty).collect();
                self.cases(&cases, place, owned)?
            }
            T::Option { ty, .. } => self.cases(&[None, Some(*ty)], place, owned)?,
            T::Result { ok, err, .. } => self.cases(&[*ok, *err], place, owned)?,
            T::Enum(cases) => Layout::scalar(number_size(cases.len())),
            T::Flags(flags) => match flags.len() {
                0..=8 => Layout::scalar(1),
                9..=16 => Layout::scalar(2),
                _ => Layout {
                    size: 4 * u32::try_from(flags.len().div_ceil(32)).unwrap_or(u32::MAX),
                    align: 4,
                },
            },
            T::List { element, .. } => {
                let mut inside = Vec::new();
                self.read(*element, 0, &mut inside)?;
                if !inside.is_empty() {
                    owned.push(Owned::List(place));
                }
                Layout::PAIR
            }
            T::Own(resource) => {
                owned.push(Owned::At(place, resource.resource()));
                Layout::scalar(4)
            }
            // It is never in a result.
            T::Borrow(_) => {
                if self.with_borrowed {
                    owned.push(Owned::Somewhere);
                }
                Layout::scalar(4)
            }
            _ => return Err(Refused::has("a type that is not read here")),
        })
    }

    fn fields(
        &self,
        fields: impl Iterator<Item = ComponentValType>,
        place: u32,
        owned: &mut Vec<Owned>,
    ) -> Result<Layout, Refused> {
        let mut layout = Layout { size: 0, align: 1 };
        for field in fields {
            let at = layout.push(self.layout(field)?);
            self.read(field, place + at, owned)?;
        }
        Ok(layout.end())
    }

    fn cases(
        &self,
        cases: &[Option<ComponentValType>],
        place: u32,
        owned: &mut Vec<Owned>,
    ) -> Result<Layout, Refused> {
        let number = number_size(cases.len());
        let mut payload = Layout { size: 0, align: 1 };
        for ty in cases.iter().flatten() {
            let case = self.layout(*ty)?;
            payload.size = payload.size.max(case.size);
            payload.align = payload.align.max(case.align);
        }
        let mut layout = Layout::scalar(number);
        let at = layout.push(payload);
        for (case, ty) in (0..).zip(cases) {
            let mut inside = Vec::new();
            if let Some(ty) = ty {
                self.read(*ty, place + at, &mut inside)?;
            }
            if !inside.is_empty() {
                owned.push(Owned::Case {
                    place,
                    size: number,
                    case,
                    inside,
                });
            }
        }
        Ok(layout.end())
    }
}

/// Bytes of the number of a case.
fn number_size(cases: usize) -> u32 {
    match cases {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

fn primitive_layout(primitive: PrimitiveValType) -> Result<Layout, Refused> {
    use PrimitiveValType as P;
    Ok(match primitive {
        P::Bool | P::S8 | P::U8 => Layout::scalar(1),
        P::S16 | P::U16 => Layout::scalar(2),
        P::S32 | P::U32 | P::F32 | P::Char => Layout::scalar(4),
        P::S64 | P::U64 | P::F64 => Layout::scalar(8),
        P::String => Layout::PAIR,
        P::ErrorContext => return Err(Refused::has("an error context")),
    })
}
