//! Facts of an interface, each declared once with its meaning: tables and documentation come from there.

/// An enum with `ALL`, a value for each variant, and the doc comment of each variant as `meaning`.
#[macro_export]
macro_rules! declared {
    (
        $(#[$outer:meta])*
        $vis:vis enum $name:ident ($(#[$value_doc:meta])+ $value_of:ident -> $type:ty) {
            $($(#[doc = $meaning:literal])+ $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$outer])*
        $vis enum $name { $($(#[doc = $meaning])+ $variant,)+ }

        impl $name {
            /// Every variant, in order.
            pub const ALL: [Self; [$($value),+].len()] = [$(Self::$variant),+];

            $(#[$value_doc])+
            pub const fn $value_of(self) -> $type {
                match self { $(Self::$variant => $value,)+ }
            }

            /// The meaning, for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+).trim_ascii(),)+ }
            }
        }
    };
}
pub use declared;

/// The names of headers, each with its meaning, and all of them as `HEADERS`.
#[macro_export]
macro_rules! headers {
    ($($(#[doc = $meaning:literal])+ $constant:ident = $name:literal;)+) => {
        $($(#[doc = $meaning])+ pub const $constant: &str = $name;)+

        /// Every header of this module with its meaning, for the documentation.
        pub const HEADERS: &[(&str, &str)] =
            &[$(($name, concat!($($meaning),+).trim_ascii())),+];
    };
}
pub use headers;
