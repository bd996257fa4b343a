//! Declaration of settings: each one becomes a typed field and a YAML key with default and comment, and is linted.

use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

/// A value in a configuration: a struct of further settings, a list of them, or a leaf.
pub trait Setting {
    /// The keys of a struct in declaration order; `None` for a single value.
    fn entries(&self) -> Option<Vec<Entry<'_>>> {
        None
    }

    /// The elements of a list of structs.
    fn elements(&self) -> Option<Vec<&dyn Setting>> {
        None
    }

    /// The meaning of this value for the linter.
    fn meaning(&self) -> Meaning<'_> {
        Meaning::Plain
    }

    /// Makes relative paths relative to the folder of the configuration file.
    fn resolve_paths(&mut self, _base: &Path) {}

    /// The value as YAML on one line (JSON is YAML).
    fn inline(&self) -> String;

    /// The default of an omitted optional struct of settings.
    fn omitted(&self) -> Option<Box<dyn Setting>> {
        None
    }

    /// The default of a struct of settings.
    fn struct_default() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// One key of a struct of settings.
pub struct Entry<'a> {
    /// The key in YAML.
    pub key: &'static str,
    /// One line per doc comment line of the field, each with its leading space.
    pub doc: &'static [&'static str],
    /// The value in effect.
    pub value: &'a dyn Setting,
}

/// Meaning of a value, as far as a linter can check it without starting the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning<'a> {
    /// Nothing to check.
    Plain,
    /// A file that the process reads.
    ReadFile(&'a Path),
    /// A file with a key or token, which no other user may read.
    SecretFile(&'a Path),
}

/// Declares a struct of settings: for each field its documentation, its key and its default, once.
macro_rules! settings {
    ($(
        $(#[doc = $struct_doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident ($key:literal): $type:ty = $default:expr;
            )*
        }
    )*) => {$(
        $(#[doc = $struct_doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $doc])*
                #[serde(rename = $key)]
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::setting::Setting for $name {
            fn entries(&self) -> Option<Vec<$crate::setting::Entry<'_>>> {
                Some(vec![$($crate::setting::Entry { key: $key, doc: &[$($doc),*], value: &self.$field },)*])
            }

            fn resolve_paths(&mut self, base: &std::path::Path) {
                $($crate::setting::Setting::resolve_paths(&mut self.$field, base);)*
            }

            fn inline(&self) -> String {
                $crate::setting::inline_json(self)
            }

            fn struct_default() -> Option<Self> {
                Some(Self::default())
            }
        }
    )*};
}
pub(crate) use settings;

/// Implements [`Setting`] for single values without a meaning for the linter.
macro_rules! plain_settings {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::setting::Setting for $type {
            fn inline(&self) -> String {
                $crate::setting::inline_json(self)
            }
        }
    )*};
}
pub(crate) use plain_settings;

plain_settings!(
    bool,
    u32,
    usize,
    f64,
    String,
    SocketAddr,
    crate::units::Timespan,
    crate::units::ByteSize,
    crate::units::Fraction
);

impl<T: Setting + Serialize + 'static> Setting for Option<T> {
    fn entries(&self) -> Option<Vec<Entry<'_>>> {
        self.as_ref().and_then(Setting::entries)
    }

    fn elements(&self) -> Option<Vec<&dyn Setting>> {
        self.as_ref().and_then(Setting::elements)
    }

    fn meaning(&self) -> Meaning<'_> {
        self.as_ref().map_or(Meaning::Plain, Setting::meaning)
    }

    fn resolve_paths(&mut self, base: &Path) {
        if let Some(value) = self {
            value.resolve_paths(base);
        }
    }

    fn inline(&self) -> String {
        inline_json(self)
    }

    fn omitted(&self) -> Option<Box<dyn Setting>> {
        if self.is_some() {
            return None;
        }
        T::struct_default().map(|value| Box::new(value) as Box<dyn Setting>)
    }
}

impl<T: Setting + Serialize> Setting for Vec<T> {
    fn elements(&self) -> Option<Vec<&dyn Setting>> {
        Some(self.iter().map(|value| value as &dyn Setting).collect())
    }

    fn resolve_paths(&mut self, base: &Path) {
        for value in self {
            value.resolve_paths(base);
        }
    }

    fn inline(&self) -> String {
        inline_json(self)
    }
}

pub(crate) fn inline_json(value: &impl Serialize) -> String {
    // Serialization can only fail for maps with keys other than strings, which no setting has.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
