//! `k8s.io/api/certificates/v1`.

use super::meta::OBJECT_META;
use crate::protobuf::table::Kind::{Bytes, Int32, Message as Nested, Text, Time, WrappedTexts};
use crate::protobuf::table::{Message, keep_zero, list, map, plain};

pub(super) static CERTIFICATE_SIGNING_REQUEST: Message = Message {
    definition: "io.k8s.api.certificates.v1.CertificateSigningRequest",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SPEC)),
        plain(3, "status", Nested(&STATUS)),
    ],
};

static SPEC: Message = Message {
    definition: "io.k8s.api.certificates.v1.CertificateSigningRequestSpec",
    fields: &[
        keep_zero(1, "request", Bytes),
        plain(2, "username", Text),
        plain(3, "uid", Text),
        list(4, "groups", Text),
        list(5, "usages", Text),
        map(6, "extra", WrappedTexts),
        keep_zero(7, "signerName", Text),
        keep_zero(8, "expirationSeconds", Int32),
    ],
};

static STATUS: Message = Message {
    definition: "io.k8s.api.certificates.v1.CertificateSigningRequestStatus",
    fields: &[list(1, "conditions", Nested(&CONDITION)), plain(2, "certificate", Bytes)],
};

static CONDITION: Message = Message {
    definition: "io.k8s.api.certificates.v1.CertificateSigningRequestCondition",
    fields: &[
        keep_zero(1, "type", Text),
        plain(2, "reason", Text),
        plain(3, "message", Text),
        plain(4, "lastUpdateTime", Time),
        plain(5, "lastTransitionTime", Time),
        keep_zero(6, "status", Text),
    ],
};
