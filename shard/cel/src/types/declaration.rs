//! Declarations of values that come from JSON: their types, their bounds for the cost estimate, and how the JSON is read.
//!
//! A caller builds the tree from a structural schema. One tree serves checking, estimating and evaluating, so values are
//! read in place and never converted as a whole.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{RESERVED_WORDS, Type, escape};
use crate::limits::MAX_REQUEST_SIZE;

const MAX_SIZE: i64 = MAX_REQUEST_SIZE as i64;
/// Longest and shortest JSON texts of durations and dates, with their quotes.
const MAX_DURATION_SIZE: i64 = 32;
const MIN_DURATION_SIZE: i64 = 3;
const MAX_DATE_TIME_SIZE: i64 = 32;
const MIN_DATE_TIME_SIZE: i64 = 21;
const DATE_SIZE: i64 = 12;

/// The declaration of a JSON value.
#[derive(Debug, Clone)]
pub struct DeclType {
    kind: DeclKind,
    /// Maximum of `size()`; 0 for values without a size, as in Kubernetes.
    max_elements: u64,
    /// Bytes of the smallest JSON text.
    min_size: i64,
    nullable: bool,
    type_: Type,
}

/// The shape of a JSON value.
#[derive(Debug, Clone)]
pub enum DeclKind {
    /// `boolean`.
    Bool,
    /// `integer`.
    Int,
    /// `number`.
    Double,
    /// `string`, perhaps of a format that is read as another type.
    Text(TextFormat),
    /// `x-kubernetes-int-or-string`: typed when it is evaluated.
    IntOrString,
    /// Any JSON value, typed when it is evaluated.
    Any,
    /// `array`.
    List {
        /// Declaration of the items.
        items: Arc<DeclType>,
        /// `x-kubernetes-list-type`.
        list: ListKind,
    },
    /// `object` with `additionalProperties`.
    Map(Arc<DeclType>),
    /// `object` with named properties.
    Object(Arc<ObjectType>),
}

/// `x-kubernetes-list-type`: decides the meaning of `==` and `+`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// Compared by position.
    Atomic,
    /// Compared without order; `+` is the union.
    Set,
    /// Compared by the keys of the items; `+` replaces items of equal keys.
    Map(Arc<[Box<str>]>),
}

/// `format` of a string, as far as it changes the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// A string, whatever its format is.
    Plain,
    /// `byte`: base64 of a byte sequence.
    Byte,
    /// `date`: a timestamp at midnight.
    Date,
    /// `date-time`: a timestamp.
    DateTime,
    /// `duration`.
    Duration,
}

/// Properties of an object.
#[derive(Debug)]
pub struct ObjectType {
    name: Arc<str>,
    fields: Vec<Field>,
    by_property: FxHashMap<Box<str>, usize>,
    by_identifier: FxHashMap<Box<str>, usize>,
    /// Whether the schema lists properties. Without a list the object has none, and `null` is no absence.
    has_properties: bool,
}

/// A property of an object.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name in JSON.
    pub property: Box<str>,
    /// Name in expressions; `None` if expressions cannot name it.
    pub identifier: Option<Box<str>>,
    /// Its declaration.
    pub type_: FieldType,
}

/// The declaration of a property.
#[derive(Debug, Clone)]
pub enum FieldType {
    /// Declared and accessible.
    Declared(Arc<DeclType>),
    /// Without a type (`x-kubernetes-preserve-unknown-fields`): not accessible, compared as JSON.
    Preserved,
}

impl DeclType {
    fn new(kind: DeclKind, type_: Type, max_elements: i64, min_size: i64) -> Self {
        let max_elements = u64::try_from(max_elements).unwrap_or(0);
        Self { kind, max_elements, min_size, nullable: false, type_ }
    }

    /// A boolean.
    #[must_use]
    pub fn bool() -> Self {
        Self::new(DeclKind::Bool, Type::Bool, 0, 4)
    }

    /// An integer.
    #[must_use]
    pub fn int() -> Self {
        Self::new(DeclKind::Int, Type::Int, 0, 1)
    }

    /// A number.
    #[must_use]
    pub fn double() -> Self {
        Self::new(DeclKind::Double, Type::Double, 0, 1)
    }

    /// Any JSON value, typed when it is evaluated.
    #[must_use]
    pub fn any() -> Self {
        Self::new(DeclKind::Any, Type::Dyn, MAX_SIZE - 2, 1)
    }

    /// An `x-kubernetes-int-or-string` with its `maxLength`.
    #[must_use]
    pub fn int_or_string(max_length: Option<i64>) -> Self {
        let max = max_length.map_or(MAX_SIZE - 2, bytes_of_characters);
        Self::new(DeclKind::IntOrString, Type::Dyn, max, 1)
    }

    /// A string with its `format`, `maxLength` and the strings of its `enum`.
    #[must_use]
    pub fn text(format: TextFormat, max_length: Option<i64>, enumeration: &[&str]) -> Self {
        let (type_, max, min) = match format {
            TextFormat::Byte => (Type::Bytes, max_length.unwrap_or(MAX_SIZE - 2).max(0), 2),
            TextFormat::Duration => (Type::Duration, MAX_DURATION_SIZE, MIN_DURATION_SIZE),
            TextFormat::Date => (Type::Timestamp, DATE_SIZE, DATE_SIZE),
            TextFormat::DateTime => (Type::Timestamp, MAX_DATE_TIME_SIZE, MIN_DATE_TIME_SIZE),
            TextFormat::Plain => {
                let longest = enumeration.iter().map(|text| text.len() as i64).max();
                let max = max_length.map(bytes_of_characters).or(longest).unwrap_or(MAX_SIZE - 2);
                (Type::String, max, 2)
            }
        };
        Self::new(DeclKind::Text(format), type_, max, min)
    }

    /// An array with its `maxItems`.
    #[must_use]
    pub fn list(items: Self, list: ListKind, max_items: Option<i64>) -> Self {
        let max = max_items.map_or_else(|| (MAX_SIZE - 2) / (items.min_size + 1), |max| max.max(0));
        let type_ = Type::list(items.type_.clone());
        Self::new(DeclKind::List { items: Arc::new(items), list }, type_, max, 2)
    }

    /// An object with `additionalProperties` and its `maxProperties`.
    #[must_use]
    pub fn map(values: Self, max_properties: Option<i64>) -> Self {
        let max = max_properties.map_or_else(|| (MAX_SIZE - 2) / (values.min_size + 6), |max| max.max(0));
        let type_ = Type::map(Type::String, values.type_.clone());
        Self::new(DeclKind::Map(Arc::new(values)), type_, max, 2)
    }

    /// An object with properties. `required` lists those that are required and have no default. `name` must be unique
    /// among the types of an environment; it appears in error messages.
    #[must_use]
    pub fn object(name: &str, properties: Vec<(String, FieldType)>, required: &[&str]) -> Self {
        Self::with_fields(name, properties, required, true, escape)
    }

    /// An object of Kubernetes, whose fields expressions name as JSON does: `request.namespace`.
    pub(crate) fn native_object(name: &str, properties: Vec<(String, FieldType)>, required: &[&str]) -> Self {
        Self::with_fields(name, properties, required, true, |property| Some(property.to_owned()))
    }

    /// An object whose schema lists no properties.
    #[must_use]
    pub fn empty_object(name: &str) -> Self {
        Self::with_fields(name, Vec::new(), &[], false, escape)
    }

    fn with_fields(
        name: &str,
        properties: Vec<(String, FieldType)>,
        required: &[&str],
        has_properties: bool,
        identifier: fn(&str) -> Option<String>,
    ) -> Self {
        let mut min_size = 2;
        for (property, type_) in &properties {
            if let FieldType::Declared(type_) = type_
                && required.contains(&property.as_str())
            {
                min_size += property.len() as i64 + type_.min_size + 4;
            }
        }
        let fields: Vec<Field> = properties
            .into_iter()
            .map(|(property, type_)| Field {
                identifier: identifier(&property).map(String::into_boxed_str),
                property: property.into_boxed_str(),
                type_,
            })
            .collect();
        let by_property = fields.iter().enumerate().map(|(i, field)| (field.property.clone(), i)).collect();
        let by_identifier = fields
            .iter()
            .enumerate()
            .filter_map(|(index, field)| Some((field.identifier.clone()?, index)))
            .collect();
        let object = ObjectType { name: name.into(), fields, by_property, by_identifier, has_properties };
        let type_ = Type::Object(Arc::clone(&object.name));
        Self::new(DeclKind::Object(Arc::new(object)), type_, 0, min_size)
    }

    /// Allows `null`.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// The type of expressions with such a value.
    #[must_use]
    pub fn type_(&self) -> &Type {
        &self.type_
    }

    /// The shape.
    #[must_use]
    pub fn kind(&self) -> &DeclKind {
        &self.kind
    }

    /// Maximum of `size()`.
    #[must_use]
    pub fn max_elements(&self) -> u64 {
        self.max_elements
    }

    /// Whether `null` is a value.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// The number of values of this type that fit in a request: the factor by which the estimated cost of a rule is
    /// multiplied where no list or map around it has a limit.
    #[must_use]
    pub fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_SIZE / (self.min_size + 1)).unwrap_or(0)
    }

    /// Declaration of the items of a list or of the values of a map.
    pub(crate) fn element(&self) -> Option<&Self> {
        match &self.kind {
            DeclKind::List { items, .. } => Some(items),
            DeclKind::Map(values) => Some(values),
            _ => None,
        }
    }
}

/// A code point has at most four bytes.
fn bytes_of_characters(max_length: i64) -> i64 {
    max_length.max(0).saturating_mul(4)
}

impl ObjectType {
    /// The name in error messages.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn has_properties(&self) -> bool {
        self.has_properties
    }

    /// A property by its name in JSON.
    #[must_use]
    pub fn property(&self, property: &str) -> Option<&Field> {
        self.fields.get(*self.by_property.get(property)?)
    }

    pub(crate) fn field(&self, identifier: &str) -> Option<&Field> {
        self.fields.get(*self.by_identifier.get(identifier)?)
    }

    /// A field by its name in expressions. A reserved word may be written without its escape, as in Kubernetes since 1.31;
    /// estimates do not know that.
    pub(crate) fn named_field(&self, name: &str) -> Option<&Field> {
        self.field(name).or_else(|| if RESERVED_WORDS.contains(&name) { self.property(name) } else { None })
    }

    /// Fields that expressions can name.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &DeclType> {
        self.fields.iter().filter_map(|field| match &field.type_ {
            FieldType::Declared(type_) => Some(&**type_),
            FieldType::Preserved => None,
        })
    }
}
