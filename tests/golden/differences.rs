//! The list of what differs from kcp, and why.

/// Differences that have one reason.
#[derive(Debug)]
pub struct Listed {
    /// Transcripts or places, separated by commas; `*` stands for anything, here and below.
    pub place: &'static str,
    /// `METHOD /path`, alternatives separated by `|`, or `#` and numbers of records.
    pub on: &'static str,
    /// Where in the answer: `/status`, `/headers/<name>`, `/body/…`.
    pub at: &'static [&'static str],
    pub reason: Reason,
}

/// Why something differs.
#[derive(Debug)]
pub enum Reason {
    /// It should.
    Deliberate(&'static str),
    /// It should not, and a later issue changes it.
    Later(&'static str),
    /// It depends on who is faster. Need not occur.
    Timing(&'static str),
}

use Reason::{Deliberate, Later, Timing};

impl Reason {
    pub fn kind(&self) -> &'static str {
        match self {
            Deliberate(_) => "deliberate",
            Later(_) => "later",
            Timing(_) => "timing",
        }
    }

    pub fn text(&self) -> &'static str {
        let (Deliberate(text) | Later(text) | Timing(text)) = self;
        text
    }
}

/// The first line that fits counts.
pub const LISTED: &[Listed] = &[
    // Everywhere.
    Listed {
        place: "*",
        on: "GET */api|GET */apis|GET */api?timeout*|GET */apis?timeout*|GET */v1?timeout*|GET */v1alpha*?timeout*\
            |GET */openapi/v3*|GET */apis/tenancy.kcp.io",
        at: &["/headers/etag", "/headers/vary"],
        reason: Deliberate("all of discovery can be revalidated and depends on Accept; in kcp, parts of it"),
    },
    Listed {
        place: "*",
        on: "*",
        at: &["/protobuf"],
        reason: Later("API server: answers in protobuf (only bodies of requests are read now)"),
    },
    Listed {
        place: "*",
        on: "*",
        at: &["/body*/annotations/fairlead.dev/shard-pick", "/events*/annotations/fairlead.dev/shard-pick"],
        reason: Deliberate("a workspace says why it is on its shard"),
    },
    // Discovery.
    Listed {
        place: "discovery/*,objects/*",
        on: "AGGREGATED /apis",
        at: &["/body/kind"],
        reason: Deliberate("kcp aggregates /api only; clients that ask for both fall back then"),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */apis*",
        at: &["/headers/content-type"],
        reason: Deliberate("kcp aggregates /api only; clients that ask for both fall back then"),
    },
    Listed {
        place: "*",
        on: "*/apis/*admissionregistration.k8s.io*",
        at: &["/status"],
        reason: Later("API server: admission webhooks and policies"),
    },
    Listed {
        place: "*",
        on: "*/apis/*certificates.k8s.io*",
        at: &["/status"],
        reason: Later("API server: certificate signing requests"),
    },
    Listed {
        place: "*",
        on: "*/apis/events.k8s.io*",
        at: &["/status"],
        reason: Later("API server: the second form of events"),
    },
    Listed {
        place: "discovery/*",
        on: "GET /apis",
        at: &[
            "/body/groups/admissionregistration.k8s.io",
            "/body/groups/certificates.k8s.io",
            "/body/groups/events.k8s.io",
        ],
        reason: Later("API server: these groups are not served yet"),
    },
    Listed {
        place: "*",
        on: "*/api*",
        at: &["/body*/resources/resourcequotas*"],
        reason: Later("API server: quotas"),
    },
    Listed {
        place: "*",
        on: "*kcp.io/v1alpha*",
        at: &["/body/resources/*/verbs"],
        reason: Deliberate(
            "kcp lists the verbs of custom resources in another order than those of built-ins",
        ),
    },
    Listed {
        place: "*",
        on: "*kcp.io/v1alpha*",
        at: &["/body/resources/*/storageVersionHash"],
        reason: Deliberate(
            "an opaque hash that only changes with the version; kcp's contains what it hashes",
        ),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */api|GET */api?timeout*|GET */openapi/v3/*",
        at: &["/headers/cache-control"],
        reason: Deliberate("who is not allowed to see it must not get it from a shared cache"),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */openapi/v3*",
        at: &["/headers/accept-ranges", "/headers/expires"],
        reason: Deliberate("documents are served whole; max-age says it"),
    },
    Listed {
        place: "a,b,c,g",
        on: "GET */openapi/v3*",
        at: &["/body/paths/*"],
        reason: Deliberate("the documents of what can be read, edited or explained, and of CRDs themselves"),
    },
    // Bootstrap objects.
    Listed {
        place: "objects/system-admin.*",
        on: "GET /apis/rbac*",
        at: &["/body/items*"],
        reason: Deliberate(
            "policy for Kubernetes' own controllers, nodes and schedulers, which do not run here",
        ),
    },
    Listed {
        place: "objects/system-admin.*",
        on: "GET /api/v1/configmaps",
        at: &["/body/items*"],
        reason: Deliberate("for aggregated servers and legacy tokens, which do not exist here"),
    },
    Listed {
        place: "objects/system-admin.*",
        on: "GET /apis/coordination.k8s.io/v1/leases",
        at: &["/body/items*"],
        reason: Deliberate("the lease of a server's identity, for storage versions of aggregated servers"),
    },
    Listed {
        place: "objects/system-system-crds.*",
        on: "*",
        at: &["/body/items/*/controller-gen.kubebuilder.io/version"],
        reason: Deliberate("another tool makes them"),
    },
    Listed {
        place: "objects/root",
        on: "*/clusterrole*",
        at: &["/body/items/development-user"],
        reason: Deliberate("what the development user may do, for whom there is a door in `fairlead up`"),
    },
    Listed {
        place: "objects/root",
        on: "*/apiexports",
        at: &["/body/items/*/metadata/generation"],
        reason: Deliberate("made with their identity; kcp adds it afterwards"),
    },
    Listed {
        place: "objects/root",
        on: "*/apiexportendpointslices",
        at: &["/body/items/*/status/endpoints"],
        reason: Later("virtual workspaces: there is nothing to point to"),
    },
    Listed {
        place: "objects/root",
        on: "*/secrets",
        at: &["/body/items/*/data/key"],
        reason: Deliberate("secret, and so not in the recordings"),
    },
    Listed {
        place: "objects/root,b",
        on: "*/logicalclusters*",
        at: &["/body*/status/conditions/APIBindings*"],
        reason: Later("exports: conditions of a logical cluster about its bindings"),
    },
    Listed {
        place: "objects/system-bound-crds.*",
        on: "*",
        at: &["/body/items/*cachedobjects.cache.kcp.io", "/body/items/*logicalclusters.core.kcp.io"],
        reason: Deliberate("one for each schema of root's exports; in kcp, for those that were bound"),
    },
    Listed {
        place: "objects/system-bound-crds.*",
        on: "*",
        at: &["/body/items/<order>"],
        reason: Timing("ordered by UID"),
    },
    Listed {
        place: "objects/system-shard.*",
        on: "GET /api/v1/configmaps",
        at: &[
            "/body/items/*/apiexport-identity-cache",
            "/body/items/*/data/fairlead.*",
            "/body/items/<order>",
        ],
        reason: Deliberate("every shard remembers root's exports, to start while the root shard is down"),
    },
    // a: without a logical cluster, and about servers.
    Listed {
        place: "a",
        on: "#102,106",
        at: &["/status"],
        reason: Later("API server: the list of paths at /"),
    },
    Listed {
        place: "a",
        on: "#110,118,126",
        at: &["/body"],
        reason: Deliberate("other things are checked in another program"),
    },
    Listed {
        place: "a",
        on: "#190,193",
        at: &["/body"],
        reason: Deliberate("other things are checked in another program"),
    },
    Listed {
        place: "a",
        on: "#110,114,118,122,126",
        at: &["/headers/audit-id", "/headers/cache-control"],
        reason: Deliberate("health is answered by the listener, before there is an audit"),
    },
    Listed {
        place: "a",
        on: "#138,142",
        at: &["/status"],
        reason: Later("service account tokens: their issuer's documents"),
    },
    Listed {
        place: "a",
        on: "#166",
        at: &["/status"],
        reason: Deliberate("404 for a group that is not served, as in Kubernetes"),
    },
    Listed { place: "a", on: "#150", at: &["/status"], reason: Deliberate("profiles of another language") },
    Listed {
        place: "a",
        on: "#154",
        at: &["/headers/*", "/body*"],
        reason: Deliberate("a Status, as everywhere"),
    },
    Listed {
        place: "a,b",
        on: "GET /*",
        at: &["/headers/audit-id"],
        reason: Deliberate("what the gateway answers itself has an Audit-Id, too"),
    },
    Listed {
        place: "a",
        on: "#211",
        at: &["/headers/content-encoding", "/headers/content-type"],
        reason: Deliberate("metrics are not compressed, and have no names to escape"),
    },
    // b: workspaces.
    Listed { place: "b", on: "#2,3,4,6", at: &["/status"], reason: Later("home workspaces") },
    Listed {
        place: "b",
        on: "#121",
        at: &["/body/message"],
        reason: Deliberate("kcp calls it an internal error"),
    },
    Listed {
        place: "b",
        on: "GET */workspaces/unschedulable",
        at: &["/body/status/conditions/WorkspaceScheduled/message"],
        reason: Deliberate("kcp's words, and why no shard is available"),
    },
    Listed {
        place: "b",
        on: "GET */logicalclusters*",
        at: &["/body*/labels/fairlead.dev/owner-shard"],
        reason: Deliberate("one filtered watch per peer: who owns what a shard made for another"),
    },
    Listed {
        place: "b",
        on: "#300,301,302,314,315,316,317",
        at: &["*"],
        reason: Timing("a workspace is deleted within milliseconds"),
    },
    Listed {
        place: "b",
        on: "#354,355,356",
        at: &["*"],
        reason: Timing("a workspace is ready within milliseconds"),
    },
    // c: ordinary objects.
    Listed {
        place: "c",
        on: "#117,122,127,132,343,344,345",
        at: &["/status"],
        reason: Later("API server: server-side apply"),
    },
    Listed {
        place: "c",
        on: "#76,81",
        at: &["/body/message", "/body/details"],
        reason: Deliberate("says what is wrong with the patch"),
    },
    Listed {
        place: "c",
        on: "#195,204,206,207,208,321,322,323,324,340,341,342",
        at: &["/body/message", "/body/details"],
        reason: Deliberate("the words of another parser"),
    },
    Listed {
        place: "c",
        on: "#251,252,253,254,257,258",
        at: &["/body/message", "/body/details"],
        reason: Later("API server: answers in protobuf (named in the list of what is acceptable)"),
    },
    Listed {
        place: "c",
        on: "#197,199",
        at: &["/status"],
        reason: Deliberate("nothing was compacted since: the old list is still known"),
    },
    Listed {
        place: "c",
        on: "#203",
        at: &["/body/message"],
        reason: Deliberate("another store has another revision"),
    },
    Listed {
        place: "c",
        on: "#212",
        at: &["/body/items*", "/body/metadata*"],
        reason: Deliberate("a limit holds for resourceVersion=0, too"),
    },
    Listed {
        place: "c",
        on: "#215,220,224,225",
        at: &["/events*"],
        reason: Timing("how much history lies between an old version and now"),
    },
    Listed {
        place: "c",
        on: "#223",
        at: &["/events/<bookmarks>*"],
        reason: Later("API server: a bookmark before a watch times out"),
    },
    Listed {
        place: "c",
        on: "#227",
        at: &["/status"],
        reason: Deliberate("paths that begin with /watch are deprecated since Kubernetes 1.11"),
    },
    Listed {
        place: "c",
        on: "#222,319",
        at: &["/status"],
        reason: Deliberate("500 for what the client did wrong"),
    },
    Listed {
        place: "c",
        on: "#226",
        at: &["/events/*/kcp.io/original-api-version"],
        reason: Deliberate("an empty annotation that says nothing"),
    },
    Listed {
        place: "c",
        on: "#243,244",
        at: &["/body/rows/*/apiVersion"],
        reason: Later("API server: rows of v1beta1 tables"),
    },
    Listed {
        place: "c",
        on: "#245,248",
        at: &["/status"],
        reason: Deliberate("metadata of a list is a list of metadata, and of an object an object"),
    },
    Listed {
        place: "c",
        on: "#263",
        at: &["/body/rows/*/object"],
        reason: Deliberate("nothing instead of null"),
    },
    Listed {
        place: "c",
        on: "#313",
        at: &["/body/message"],
        reason: Deliberate("does not tell storage keys"),
    },
    Listed {
        place: "c",
        on: "#326,327,328,331",
        at: &["/body/metadata/annotations"],
        reason: Deliberate("a dry run answers what a real one would"),
    },
    Listed {
        place: "c",
        on: "#358,359",
        at: &["/status"],
        reason: Later("API server: deletion in the foreground"),
    },
    Listed {
        place: "c",
        on: "#362",
        at: &["/body/details/causes"],
        reason: Deliberate("one cause for one fault"),
    },
    Listed {
        place: "c",
        on: "#392",
        at: &["/body/items/*/apiVersion", "/body/items/*/kind"],
        reason: Deliberate("what was deleted is shown whole"),
    },
    Listed {
        place: "c",
        on: "*",
        at: &["/body/items/*cmssa", "/body/rows/*cmssa", "/body/items/<order>"],
        reason: Later(
            "API server: deletion in the foreground (it was refused, so the object is still there)",
        ),
    },
    Listed {
        place: "c",
        on: "#468",
        at: &["/body/rows/workspace-admin/*/internal.kcp.io/replicate"],
        reason: Later("exports: RBAC that other shards must know is marked"),
    },
    Listed {
        place: "c",
        on: "#481",
        at: &["/status"],
        reason: Deliberate("500 for what the client did wrong"),
    },
    Listed {
        place: "c",
        on: "#601,622",
        at: &["/body/spec/namespace", "/body/.spec.namespace"],
        reason: Deliberate("the review says what it is about"),
    },
    Listed {
        place: "c",
        on: "#622",
        at: &["/body/status/*"],
        reason: Deliberate("the same rules in another order, none of them twice"),
    },
    Listed {
        place: "c",
        on: "#604,605,606,609,610,613,614,617,618",
        at: &["/headers/*", "/body*", "/status"],
        reason: Later("API server: impersonation"),
    },
    Listed {
        place: "c",
        on: "#625",
        at: &["/status"],
        reason: Later("service account tokens: token reviews"),
    },
    Listed {
        place: "c",
        on: "*/serviceaccounts/*/token",
        at: &["/status"],
        reason: Later("service account tokens"),
    },
    Listed {
        place: "c",
        on: "*/resourcequotas*",
        at: &["/status", "/body*"],
        reason: Later("API server: quotas"),
    },
    Listed {
        place: "c",
        on: "#808,812",
        at: &["/status"],
        reason: Timing("a namespace is deleted within milliseconds"),
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
        reason: Deliberate("the recording has workspaces of scenarios that are not replayed"),
    },
    Listed {
        place: "g",
        on: "#47,48,52,56",
        at: &["/body/rows*", "/body/items*", "/body/status"],
        reason: Later("exports: partition sets make partitions"),
    },
    Listed { place: "g", on: "#87,93", at: &["/status"], reason: Later("exports of workspaces") },
    Listed { place: "g", on: "#108", at: &["/body/items*"], reason: Later("exports of workspaces") },
];
