//! Types of objects, as server-side apply sees them: how values are merged and in which units they are owned.
//!
//! A type says of each list whether it is atomic, a set or a map by keys, and of each object whether it is atomic.
//! Types are built from OpenAPI definitions ([`TypeTable::of_definitions`]) or from structural schemas.

mod open_api;

use serde_json::Value;

/// The types of a schema. Types refer to each other by number, so recursive schemas need no special case.
#[derive(Debug, Default)]
pub struct TypeTable {
    types: Vec<Type>,
}

/// A type of the table that is searched, or of the common table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TypeRef(u32);

impl TypeRef {
    /// Set in references to the common table.
    const COMMON: u32 = 1 << 31;

    /// A value without schema, owned as a whole.
    pub(crate) const ATOMIC: Self = Self(Self::COMMON);
    /// A value without schema: objects are owned by field, lists as a whole.
    pub(crate) const DEDUCED: Self = Self(Self::COMMON | 1);
    /// The metadata of an object.
    pub(crate) const OBJECT_META: Self = Self(Self::COMMON | 2);
    /// A text.
    pub(crate) const TEXT: Self = Self(Self::COMMON | 3);

    const fn common(index: usize) -> Self {
        Self(Self::COMMON | index as u32)
    }
}

/// The forms that a value may have. A value of a schema without a type may have all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Type {
    pub(crate) scalar: Option<ScalarType>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScalarType {
    Numeric,
    Text,
    Boolean,
    /// Any of them.
    Untyped,
}

#[derive(Clone, Debug)]
pub(crate) struct ListType {
    pub(crate) items: TypeRef,
    pub(crate) relation: ListRelation,
}

/// The relation of a list's items to each other.
#[derive(Clone, Debug)]
pub(crate) enum ListRelation {
    /// The list is owned as a whole.
    Atomic,
    /// The items are distinct scalars.
    Set,
    /// The items are objects that are identified by these fields, in the order of the schema.
    Map(Box<[ListKey]>),
}

/// A field that identifies an item.
#[derive(Clone, Debug)]
pub(crate) struct ListKey {
    pub(crate) name: Box<str>,
    /// The value of an item without the field.
    pub(crate) default: Option<Value>,
}

/// An object or a map.
#[derive(Clone, Debug)]
pub(crate) struct MapType {
    /// The declared fields, sorted by name.
    pub(crate) fields: Box<[FieldType]>,
    /// The type of all other fields; `None`: there are none.
    pub(crate) others: Option<TypeRef>,
    /// Whether the object is owned as a whole.
    pub(crate) is_atomic: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct FieldType {
    pub(crate) name: Box<str>,
    pub(crate) value: TypeRef,
    /// Whether the field is a Go struct that is not a pointer: an object without it has an empty one, so that it is
    /// neither added nor removed.
    pub(crate) is_always_present: bool,
}

impl MapType {
    /// A declared field.
    pub(crate) fn field(&self, name: &str) -> Option<&FieldType> {
        let found = self.fields.binary_search_by(|field| (*field.name).cmp(name));
        found.ok().map(|index| &self.fields[index])
    }

    /// The type of a field, declared or not.
    pub(crate) fn value(&self, name: &str) -> Option<TypeRef> {
        self.field(name).map(|field| field.value).or(self.others)
    }
}

/// The type of the objects of one kind and version.
#[derive(Clone, Copy, Debug)]
pub struct ObjectType<'t> {
    own: &'t [Type],
    common: &'t [Type],
    pub(crate) root: TypeRef,
}

impl<'t> ObjectType<'t> {
    /// A type of a table of its own.
    pub(crate) fn new(own: &'t TypeTable, common: &'t TypeTable, root: TypeRef) -> Self {
        Self { own: &own.types, common: &common.types, root }
    }

    /// The type of objects without schema.
    pub fn untyped(common: &'t TypeTable) -> Self {
        Self { own: &[], common: &common.types, root: TypeRef::DEDUCED }
    }

    pub(crate) fn get(&self, reference: TypeRef) -> &'t Type {
        static NOTHING: Type = Type { scalar: None, list: None, map: None };
        let table = if reference.0 & TypeRef::COMMON == 0 { self.own } else { self.common };
        table.get((reference.0 & !TypeRef::COMMON) as usize).unwrap_or(&NOTHING)
    }
}

impl TypeTable {
    /// An empty table, to which the types of a structural schema are added.
    pub(crate) fn own() -> Self {
        Self::default()
    }

    /// Reserves a place for a type, so that it can refer to itself.
    pub(crate) fn reserve(&mut self) -> TypeRef {
        self.types.push(Type::default());
        TypeRef((self.types.len() - 1) as u32)
    }

    /// Sets a reserved type.
    pub(crate) fn set(&mut self, reference: TypeRef, value: Type) {
        if let Some(place) = self.types.get_mut((reference.0 & !TypeRef::COMMON) as usize) {
            *place = value;
        }
    }

    pub(crate) fn get(&self, reference: TypeRef) -> Option<&Type> {
        self.types.get((reference.0 & !TypeRef::COMMON) as usize)
    }
}
