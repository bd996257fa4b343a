//! Conversions by a webhook for the comparison of field owners, whose fields are recorded in the version of their writes.
//!
//! The comparison is a pure function that cannot wait for a call. It therefore runs with the conversions that are known, and again
//! after one that it lacked was made. It needs the old and the new object in the version of each manager, so a write calls the
//! webhook at most a few times per served version, and only for managers that have written in another version.

use std::borrow::Cow;

use fairlead_process::Status;
use fairlead_schema::apply::ConversionFailure;
use parking_lot::Mutex;
use serde_json::Value;

use super::conversion::{convert, to_version};
use super::{Conversion, ServedResource};

/// The conversions of one write.
#[derive(Default)]
pub(super) struct OwnerConversions(Mutex<Known>);

#[derive(Default)]
struct Known {
    conversions: Vec<KnownConversion>,
    /// The conversion that the last comparison lacked: an object and a version.
    lacked: Option<(Value, String)>,
}

struct KnownConversion {
    object: Value,
    version: String,
    converted: Result<Value, String>,
}

impl OwnerConversions {
    /// An object in another version.
    ///
    /// # Errors
    /// The reason why it cannot be converted, or that the webhook has to be called first; see [`complete`](Self::complete).
    pub(super) fn converted(
        &self,
        resource: &ServedResource,
        version: &str,
        object: &Value,
    ) -> Result<Cow<'static, Value>, ConversionFailure> {
        if !matches!(resource.conversion, Conversion::Webhook(_)) {
            return convert(resource, version, object.clone()).map(Cow::Owned).map_err(ConversionFailure);
        }
        let mut known = self.0.lock();
        let found = known.conversions.iter().find(|one| one.version == version && one.object == *object);
        if let Some(found) = found {
            return found.converted.clone().map(Cow::Owned).map_err(ConversionFailure);
        }
        known.lacked = Some((object.clone(), version.to_owned()));
        Err(ConversionFailure("the webhook has not been called".to_owned()))
    }

    /// Compares until no conversion is lacking.
    ///
    /// # Errors
    /// Those of the comparison.
    pub(super) async fn complete<T>(
        &self,
        resource: &ServedResource,
        compare: impl Fn() -> Result<T, Status>,
    ) -> Result<T, Status> {
        loop {
            let outcome = compare();
            let Some((object, version)) = self.0.lock().lacked.take() else { return outcome };
            let converted = to_version(resource, &version, object.clone()).await;
            let converted = converted.map_err(|status| status.message);
            self.0.lock().conversions.push(KnownConversion { object, version, converted });
        }
    }
}
