//! The entry point of the fuzz target of conversion webhooks.

use fairlead_schema::crd::ReviewVersion;
use serde_json::json;

use super::review::converted;

/// A response. Converted objects have the requested version and the identity of the originals.
pub(crate) fn conversion_response(body: &[u8]) {
    let original = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {
        "name": "a", "uid": "u", "generation": 3, "labels": {"x": "1"}, "annotations": {"y": "2"}}});
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        for originals in [vec![original.clone()], vec![original.clone(), original.clone()]] {
            let count = originals.len();
            let Ok(objects) = converted(version, "u", body, "g/v2", originals) else { continue };
            assert_eq!(objects.len(), count);
            for object in objects {
                assert!(object["apiVersion"] == "g/v2" && object["kind"] == "K", "{object}");
                let metadata = &object["metadata"];
                assert!(
                    metadata["name"] == "a" && metadata["uid"] == "u" && metadata["generation"] == 3,
                    "{object}"
                );
            }
        }
    }
}
