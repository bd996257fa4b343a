//! The list of differences from kcp, with their reasons.

/// Differences with the same reason.
#[derive(Debug)]
pub struct Listed {
    /// Transcripts or places, separated by commas. Here and below, `*` matches any text.
    pub place: &'static str,
    /// `METHOD /path`, alternatives separated by `|`; or `#` and the numbers of records.
    pub on: &'static str,
    /// The parts of the response: `/status`, `/headers/<name>`, `/body/…`.
    pub at: &'static [&'static str],
    pub reason: Reason,
}

/// The reason for a difference.
#[derive(Debug)]
pub enum Reason {
    /// Fairlead behaves differently on purpose. The text gives the advantage for users.
    Deliberate(&'static str),
    /// Fairlead does not have the function yet. The text names it.
    Later(&'static str),
    /// The recording is no measure here, because of how it was made.
    Recording(&'static str),
    /// The difference depends on timing and need not occur.
    Timing(&'static str),
}

use Reason::{Deliberate, Later, Recording, Timing};

impl Reason {
    pub fn kind(&self) -> &'static str {
        match self {
            Deliberate(_) => "deliberate",
            Later(_) => "later",
            Recording(_) => "recording",
            Timing(_) => "timing",
        }
    }

    pub fn text(&self) -> &'static str {
        let (Deliberate(text) | Later(text) | Recording(text) | Timing(text)) = self;
        text
    }
}

/// The list. The first line that matches a difference explains it.
pub const LISTED: &[Listed] = &[
    // Everywhere.
    Listed {
        place: "*",
        on: "GET */api|GET */apis|GET */api?timeout*|GET */apis?timeout*|GET */v1?timeout*|GET */v1alpha*?timeout*\
            |GET */openapi/v3*|GET */apis/tenancy.kcp.io",
        at: &["/headers/etag", "/headers/vary"],
        reason: Deliberate(
            "Every discovery document has an ETag and `Vary: Accept`, so that clients can revalidate it. In kcp, some have.",
        ),
    },
    Listed {
        place: "*",
        on: "*",
        at: &["/protobuf"],
        reason: Later("API server: protobuf responses. Only request bodies are understood."),
    },
    Listed {
        place: "*",
        on: "*",
        at: &["/body*/annotations/fairlead.dev/shard-pick", "/events*/annotations/fairlead.dev/shard-pick"],
        reason: Deliberate("An additional annotation of a workspace gives the reason for its placement."),
    },
    // Discovery.
    Listed {
        place: "discovery/*,objects/*",
        on: "AGGREGATED /apis",
        at: &["/body/kind"],
        reason: Deliberate(
            "Fairlead aggregates discovery of /apis, too, which saves one request per group version. kcp aggregates /api only.",
        ),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */apis*",
        at: &["/headers/content-type"],
        reason: Deliberate(
            "Fairlead aggregates discovery of /apis, too, which saves one request per group version. kcp aggregates /api only.",
        ),
    },
    Listed {
        place: "*",
        on: "*kcp.io/v1alpha*",
        at: &["/body/resources/*/verbs"],
        reason: Deliberate(
            "The verbs are a set. Fairlead lists them in the same order for all resources, kcp in another order for custom resources.",
        ),
    },
    Listed {
        place: "*",
        on: "*kcp.io/v1alpha*",
        at: &["/body/resources/*/storageVersionHash"],
        reason: Deliberate(
            "The hash is opaque. Clients only compare it with an earlier one of the same server.",
        ),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */api|GET */api?timeout*|GET */openapi/v3/*",
        at: &["/headers/cache-control"],
        reason: Deliberate(
            "A shared cache must not serve these documents to clients without access to the workspace. kcp marks them as public.",
        ),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */openapi/v3*",
        at: &["/headers/accept-ranges", "/headers/expires"],
        reason: Deliberate(
            "OpenAPI documents are not served in ranges. Cache-Control has the lifetime, so Expires is not needed (RFC 9111, 5.3).",
        ),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */openapi/v3*",
        at: &["/body/paths/apis/apiextensions.k8s.io", "/body/paths/apis/apiextensions.k8s.io/v1"],
        reason: Deliberate("An additional OpenAPI document for CRDs makes `kubectl explain crd` work."),
    },
    // Bootstrap objects.
    Listed {
        place: "objects/system-admin.*",
        on: "GET /apis/rbac*",
        at: &["/body/items*"],
        reason: Deliberate(
            "Roles for Kubernetes' controllers, nodes and schedulers, which do not exist in Fairlead.",
        ),
    },
    Listed {
        place: "objects/system-admin.*",
        on: "GET /api/v1/configmaps",
        at: &["/body/items*"],
        reason: Deliberate(
            "Configuration for aggregated API servers and legacy service account tokens, which a shard does not have.",
        ),
    },
    Listed {
        place: "objects/system-admin.*",
        on: "GET /apis/coordination.k8s.io/v1/leases",
        at: &["/body/items*"],
        reason: Deliberate(
            "The identity lease of an API server, which coordinates storage versions between replicas. A shard is one process.",
        ),
    },
    Listed {
        place: "objects/system-system-crds.*",
        on: "*",
        at: &["/body/items/*/controller-gen.kubebuilder.io/version"],
        reason: Deliberate(
            "The annotation names the generator of the CRD. Fairlead's CRDs have another generator.",
        ),
    },
    Listed {
        place: "objects/root",
        on: "*/clusterrole*",
        at: &["/body/items/development-user"],
        reason: Deliberate("`fairlead up` grants its development user access to workspaces."),
    },
    Listed {
        place: "objects/root",
        on: "*/apiexports",
        at: &["/body/items/*/metadata/generation"],
        reason: Deliberate(
            "Fairlead creates an export with its identity. kcp adds the identity in a second write, which increases the generation.",
        ),
    },
    Listed {
        place: "objects/root",
        on: "*/secrets",
        at: &["/body/items/*/data/key"],
        reason: Recording("Secrets are redacted."),
    },
    Listed {
        place: "objects/root,b",
        on: "*/logicalclusters*",
        at: &["/body*/status/conditions/APIBindings*"],
        reason: Later("Exports: conditions of a logical cluster about its bindings."),
    },
    Listed {
        place: "objects/system-bound-crds.*",
        on: "*",
        at: &["/body/items/*cachedobjects.cache.kcp.io", "/body/items/*logicalclusters.core.kcp.io"],
        reason: Deliberate(
            "Fairlead has a bound CRD for each schema of root's exports from the start. kcp creates it with the first binding.",
        ),
    },
    Listed {
        place: "objects/system-bound-crds.*",
        on: "*",
        at: &["/body/items/<order>"],
        reason: Timing("The objects are ordered by their names, which are random UIDs."),
    },
    Listed {
        place: "objects/system-shard.*",
        on: "GET /api/v1/configmaps",
        at: &[
            "/body/items/*/apiexport-identity-cache",
            "/body/items/*/data/fairlead.*",
            "/body/items/<order>",
        ],
        reason: Deliberate(
            "Every shard stores root's exports, so that it can start while the root shard is down.",
        ),
    },
    // a: paths without a logical cluster, and paths of servers.
    Listed {
        place: "a",
        on: "#102,106",
        at: &["/body/paths*", "/headers/*"],
        reason: Deliberate(
            "The paths that exist. The checks of a shard's health have other names, and fewer groups are served yet.",
        ),
    },
    Listed {
        place: "a",
        on: "#110,118,126",
        at: &["/body"],
        reason: Deliberate("`?verbose` lists the checks by name. Fairlead has other checks."),
    },
    Listed {
        place: "a",
        on: "#190,193",
        at: &["/body"],
        reason: Deliberate("`?verbose` lists the checks by name. Fairlead has other checks."),
    },
    Listed {
        place: "a",
        on: "#110,114,118,122,126",
        at: &["/headers/audit-id", "/headers/cache-control"],
        reason: Deliberate(
            "The listener responds to health checks itself, before the request chain with its audit.",
        ),
    },
    Listed {
        place: "a",
        on: "#138",
        at: &["/body/id_token_signing_alg_values_supported*"],
        reason: Deliberate(
            "The service account keys of `fairlead up` are on P-256, whose signatures cost a hundredth of RSA's.",
        ),
    },
    Listed {
        place: "a",
        on: "#142",
        at: &["/body/keys/*"],
        reason: Deliberate(
            "The service account keys of `fairlead up` are on P-256, whose signatures cost a hundredth of RSA's.",
        ),
    },
    Listed {
        place: "a",
        on: "#166",
        at: &["/status"],
        reason: Deliberate(
            "A group that is not served is 404, as in Kubernetes. kcp responds with an empty list for any group.",
        ),
    },
    Listed {
        place: "a",
        on: "#150",
        at: &["/status"],
        reason: Deliberate("The profiles of kcp are those of the Go runtime."),
    },
    Listed {
        place: "a",
        on: "#154",
        at: &["/headers/*", "/body*"],
        reason: Deliberate("The error is a Status, as for every other path. In kcp it is plain text."),
    },
    Listed {
        place: "a,b",
        on: "GET /*",
        at: &["/headers/audit-id"],
        reason: Deliberate(
            "Responses of the gateway itself have an Audit-Id, too, so that they can be found in its access log.",
        ),
    },
    Listed {
        place: "a",
        on: "#211",
        at: &["/headers/content-encoding", "/headers/content-type"],
        reason: Deliberate(
            "Metrics are small and not compressed. No name needs escaping, so the content type has no such parameter.",
        ),
    },
    // b: workspaces.
    Listed {
        place: "b",
        on: "#2",
        at: &["/status"],
        reason: Timing(
            "The first request creates the home workspace and gets 429; clients repeat it. kcp's had been created.",
        ),
    },
    Listed {
        place: "b",
        on: "#121",
        at: &["/body/message"],
        reason: Deliberate("The message does not call an unknown workspace type an internal error."),
    },
    Listed {
        place: "b",
        on: "GET */workspaces/unschedulable",
        at: &["/body/status/conditions/WorkspaceScheduled/message"],
        reason: Deliberate("kcp's message, followed by the reason why no shard is available."),
    },
    Listed {
        place: "b",
        on: "GET */logicalclusters*",
        at: &["/body*/labels/fairlead.dev/owner-shard"],
        reason: Deliberate(
            "An additional label names the shard of the owning workspace, so that shards need one filtered watch per peer.",
        ),
    },
    Listed {
        place: "b",
        on: "#300,301,302,314,315,316,317",
        at: &["*"],
        reason: Timing("Fairlead deletes a workspace within milliseconds."),
    },
    Listed {
        place: "b",
        on: "#354,355,356",
        at: &["*"],
        reason: Timing("A workspace is ready within milliseconds."),
    },
    // c: ordinary objects.
    Listed {
        place: "c",
        on: "#76,81",
        at: &["/body/details/causes"],
        reason: Deliberate("A cause names the operation of the JSON patch that failed. kcp has none."),
    },
    Listed {
        place: "c",
        on: "#195,204,206,207,208,321,322,323,324,340,341,342",
        at: &["/body/message", "/body/details"],
        reason: Deliberate(
            "Status, reason and code are equal. The rest of the message comes from the parser, in kcp from those of Go.",
        ),
    },
    Listed {
        place: "c",
        on: "#251,252,253,254,257,258",
        at: &["/body/message", "/body/details"],
        reason: Later("API server: protobuf responses. The message lists the acceptable media types."),
    },
    Listed {
        place: "c",
        on: "#197,199",
        at: &["/status"],
        reason: Deliberate(
            "The store still has the requested revision, so the list is served. kcp responds with 410.",
        ),
    },
    Listed {
        place: "c",
        on: "#212",
        at: &["/body/items*", "/body/metadata*"],
        reason: Deliberate(
            "A limit is respected for resourceVersion=0, too. kcp ignores it and sends the whole list.",
        ),
    },
    Listed {
        place: "c",
        on: "#215,220,224,225",
        at: &["/events*"],
        reason: Timing(
            "The events between an old revision and the present depend on the history before the watch.",
        ),
    },
    Listed {
        place: "c",
        on: "#222,319",
        at: &["/status"],
        reason: Deliberate("An invalid request is 400. kcp responds with 500."),
    },
    Listed {
        place: "c",
        on: "#226",
        at: &["/events/*/kcp.io/original-api-version"],
        reason: Deliberate("kcp adds an empty annotation, which carries no information."),
    },
    Listed {
        place: "c",
        on: "#245,248",
        at: &["/status"],
        reason: Deliberate(
            "PartialObjectMetadata of a list is served as a list of metadata, and vice versa. kcp responds with 406.",
        ),
    },
    Listed {
        place: "c",
        on: "#313",
        at: &["/body/message"],
        reason: Deliberate("The message does not contain the storage key, an internal of the server."),
    },
    Listed {
        place: "c",
        on: "#326,327,328,331",
        at: &["/body/metadata/annotations"],
        reason: Deliberate(
            "A dry run returns the same object as the real request, including the annotation kcp.io/cluster.",
        ),
    },
    Listed {
        place: "c",
        on: "#362",
        at: &["/body/details/causes"],
        reason: Deliberate("One cause per error. kcp lists the same cause twice."),
    },
    Listed {
        place: "c",
        on: "#392",
        at: &["/body/items/*/apiVersion", "/body/items/*/kind"],
        reason: Deliberate("Deleted objects are returned with apiVersion and kind."),
    },
    Listed {
        place: "c",
        on: "#468",
        at: &["/body/rows/workspace-admin/*/internal.kcp.io/replicate"],
        reason: Later("Exports: marking the RBAC objects that other shards need."),
    },
    Listed {
        place: "c",
        on: "#481",
        at: &["/status"],
        reason: Deliberate("An invalid object is 422. kcp responds with 500."),
    },
    Listed {
        place: "c",
        on: "#601,622",
        at: &["/body/spec/namespace", "/body/.spec.namespace"],
        reason: Deliberate("The review is returned with its namespace, as it was sent. kcp removes it."),
    },
    Listed {
        place: "c",
        on: "#622",
        at: &["/body/status/*"],
        reason: Deliberate(
            "The rules are a set. Fairlead lists them in another order and without duplicates.",
        ),
    },
    Listed {
        place: "c",
        on: "*/serviceaccounts/*/token",
        at: &["/body/.status.token"],
        reason: Recording("Tokens differ each time; the recording has none."),
    },
    Listed {
        place: "c",
        on: "*/resourcequotas*",
        at: &["/body/status/used", "/body/rows/*"],
        reason: Deliberate(
            "Limits by classic names such as `secrets` are enforced and shown. kcp accepts them and counts nothing.",
        ),
    },
    Listed {
        place: "c",
        on: "#731,735,739",
        at: &["/status", "/body*", "/protobuf"],
        reason: Deliberate(
            "A limit of `configmaps` is enforced, as in Kubernetes. kcp accepts the quota and ignores it.",
        ),
    },
    Listed {
        place: "c",
        on: "#774,788",
        at: &["/body/rows/demo/q-b", "/body/rows/demo/q-c", "/body/items/demo/q-b", "/body/items/demo/q-c"],
        reason: Deliberate("A limit of `configmaps` is enforced, so the objects beyond it do not exist."),
    },
    Listed {
        place: "c",
        on: "#793,795",
        at: &["/status"],
        reason: Deliberate("A limit of `configmaps` is enforced, so the objects beyond it do not exist."),
    },
    Listed {
        place: "c",
        on: "#808,812",
        at: &["/status"],
        reason: Timing("Fairlead deletes a namespace within milliseconds."),
    },
    // g: shards and partitions.
    Listed {
        place: "g",
        on: "GET */workspaces?limit=500",
        at: &[
            "/body/items/consumer",
            "/body/items/golden-fresh",
            "/body/items/golden-fresh-org",
            "/body/items/inited",
            "/body/items/provider",
        ],
        reason: Recording("Workspaces of scenarios that are not replayed."),
    },
    Listed {
        place: "g",
        on: "#47,48,52,56",
        at: &["/body/rows*", "/body/items*", "/body/status"],
        reason: Later("Exports: partitions of partition sets."),
    },
    Listed {
        place: "g",
        on: "#108",
        at: &["/body/items*"],
        reason: Timing(
            "A controller writes the status of a new endpoint slice; the replayed list does not wait for it.",
        ),
    },
];
