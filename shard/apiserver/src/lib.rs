//! A generic Kubernetes API server over a registry: requests, discovery, watch hub, authz, admission.
