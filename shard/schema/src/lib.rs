//! What a resource's schema means: structural schemas, defaulting, pruning, patches, OpenAPI.
