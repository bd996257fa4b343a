//! Rules about the gateway's listeners: authentication, certificates, and the identities that shards see.

use std::path::Path;

use fairlead_config::{GatewayConfig, ListenerConfig, TokenPolicy};

use crate::certificate::{Certificate, Usage};
use crate::issuers;
use crate::kubeconfigs::KubeconfigPart;
use crate::linter::{AuthorityUse, FileLinter};
use crate::pairs::below;

pub(crate) fn inspect(config: &GatewayConfig, linter: &mut FileLinter<'_>) {
    let default_certificate = check_upstream(config, linter);
    let mut identities = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let key = format!("listeners[{index}]");
        check_serving(listener, &key, linter);
        check_authentication(listener, &key, linter);
        check_deny(listener, &key, linter);
        check_behind_proxy(listener, &key, linter);
        let own = listener.upstream_identity.as_ref().map(|own| {
            linter.check_key_pair(
                &below(&key, "upstreamIdentity"),
                &own.certificate,
                &own.private_key,
                Usage::Client,
            )
        });
        identities.push(UpstreamIdentity {
            listener,
            certificate: own.unwrap_or_else(|| default_certificate.clone()),
        });
    }
    check_upstream_identities(&identities, linter);
}

/// Checks the connections to shards. Returns the client certificate of listeners without one of their own.
fn check_upstream(config: &GatewayConfig, linter: &mut FileLinter<'_>) -> Option<Certificate> {
    let upstream = &config.upstream;
    // A mapping file names certificates of its own.
    let default_certificate = config.paths.mapping_file.is_none().then(|| {
        linter.check_bundle("upstream.serverCA", &upstream.server_ca, AuthorityUse::Server);
        linter.check_key_pair("upstream", &upstream.certificate, &upstream.private_key, Usage::Client)
    });
    for (index, shard) in upstream.shards.iter().enumerate() {
        let key = format!("upstream.shards[{index}]");
        if let (Some(certificate), Some(private_key)) = (&shard.certificate, &shard.private_key) {
            linter.check_key_pair(&key, certificate, private_key, Usage::Client);
        }
        if let Some(file) = &shard.server_ca {
            linter.check_bundle(&below(&key, "serverCA"), file, AuthorityUse::Server);
        }
        if let Some(file) = &shard.kubeconfig {
            linter.check_kubeconfig(&below(&key, "kubeconfig"), file, KubeconfigPart::User);
        }
    }
    let index = &config.index;
    linter.check_kubeconfig(
        "index.rootShardKubeconfig",
        &index.root_shard_kubeconfig,
        KubeconfigPart::Context(None),
    );
    linter.check_kubeconfig("index.shardsKubeconfig", &index.shards_kubeconfig, KubeconfigPart::User);
    for (number, file) in index.shard_peer_kubeconfigs.iter().enumerate() {
        linter.check_kubeconfig(
            &format!("index.shardPeerKubeconfigs[{number}]"),
            file,
            KubeconfigPart::Context(None),
        );
    }
    default_certificate.flatten()
}

/// Checks the serving certificates of a listener against its host names.
fn check_serving(listener: &ListenerConfig, key: &str, linter: &mut FileLinter<'_>) {
    // A certificate from ACME is always for the requested names.
    let default = match &listener.tls.acme {
        None => linter.check_serving_certificate(&below(key, "serving"), &listener.serving),
        Some(_) => None,
    };
    let mut named = Vec::new();
    for (index, entry) in listener.tls.server_names.iter().enumerate() {
        let at = format!("{key}.tls.serverNames[{index}]");
        let Some(leaf) = linter.check_key_pair(&at, &entry.certificate, &entry.private_key, Usage::Server)
        else {
            continue;
        };
        for name in &entry.names {
            if !leaf.is_named(name) {
                let message =
                    format!("the certificate is not for {name:?}, but for {}", leaf.names().join(", "));
                linter.checker.fault(
                    &below(&at, "names"),
                    &message,
                    "clients that request this name would reject it",
                );
            }
        }
        let names = if entry.names.is_empty() { leaf.names() } else { entry.names.clone() };
        named.push((names, leaf));
    }
    for (index, host) in listener.hosts.iter().enumerate() {
        let Some(leaf) = selected_certificate(host, &named).or(default.as_ref()) else { continue };
        if !leaf.is_named(host) {
            let message =
                format!("clients that ask for {host:?} get a certificate for {}", leaf.names().join(", "));
            let hint =
                "issue a certificate with this subject alternative name, or add one to tls.serverNames";
            linter.checker.fault(&format!("{key}.hosts[{index}]"), &message, hint);
        }
    }
}

/// The certificate that a listener selects: an exact name before a wildcard.
fn selected_certificate<'n>(host: &str, named: &'n [(Vec<String>, Certificate)]) -> Option<&'n Certificate> {
    let with = |wanted: &str| {
        let found =
            named.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(wanted)));
        found.map(|(_, leaf)| leaf)
    };
    with(host).or_else(|| with(&format!("*.{}", host.split_once('.')?.1)))
}

/// Checks the authentication of a listener.
fn check_authentication(listener: &ListenerConfig, key: &str, linter: &mut FileLinter<'_>) {
    let authentication = &listener.authentication;
    let headers = &authentication.request_header;
    for (at, file, usage) in [
        ("clientCA", &listener.client_ca, AuthorityUse::Identity),
        ("authentication.requestHeader.clientCA", &headers.client_ca, AuthorityUse::Proxy),
        ("tls.transportClientCA", &listener.tls.transport_client_ca, AuthorityUse::Transport),
    ] {
        if let Some(file) = file {
            linter.check_bundle(&below(key, at), file, usage);
        }
    }
    if headers.client_ca.is_some() && headers.allowed_names.is_empty() {
        let message = "any certificate of requestHeader.clientCA can assert any identity";
        let at = below(key, "authentication.requestHeader.allowedNames");
        linter.checker.fault(&at, message, "name the proxies' common names, such as kcp-mounts-proxy");
    }
    if let Some(webhook) = &authentication.webhook {
        linter.check_kubeconfig(
            &below(key, "authentication.webhook.kubeconfig"),
            &webhook.kubeconfig,
            KubeconfigPart::Context(None),
        );
    }
    issuers::inspect(authentication, &below(key, "authentication"), linter);
    linter.check_networks(&below(key, "peers.allow"), listener.peers.allow.as_deref());
}

/// `deny` only applies to identities that the listener itself authenticates, not to tokens that are passed to shards.
fn check_deny(listener: &ListenerConfig, key: &str, linter: &mut FileLinter<'_>) {
    let deny = &listener.deny;
    if (deny.users.is_empty() && deny.groups.is_empty()) || listener.tokens == TokenPolicy::Refuse {
        return;
    }
    let authentication = &listener.authentication;
    // With a token method, unknown tokens are rejected.
    let verifies_tokens = authentication.token_file.is_some()
        || !authentication.service_accounts.key_files.is_empty()
        || authentication.oidc.is_some()
        || authentication.configuration.is_some()
        || authentication.webhook.is_some();
    if !verifies_tokens {
        let message =
            "tokens pass through to shards without authentication here, so that deny does not apply to them";
        let hint = "set tokens: refuse, or a token method in authentication";
        linter.checker.fault(&below(key, "deny"), message, hint);
    }
}

/// Checks a listener behind proxies that terminate the TLS of clients.
fn check_behind_proxy(listener: &ListenerConfig, key: &str, linter: &mut FileLinter<'_>) {
    let is_behind_proxy =
        listener.tls.transport_client_ca.is_some() || listener.peers.client_address_header.is_some();
    if !is_behind_proxy {
        return;
    }
    let has_list = listener.peers.allow.as_deref().is_some_and(|file: &Path| !file.as_os_str().is_empty());
    if !has_list {
        let message = "clients that know the address of this listener can bypass the provider";
        let hint = "name the provider's list of networks, which it publishes";
        linter.checker.fault(&below(key, "peers.allow"), message, hint);
    }
    if listener.client_ca.is_some() && listener.tls.transport_client_ca.is_none() {
        let message = "peers that pass client addresses terminate the TLS of clients: the only certificate that arrives is their \
                       own, and would authenticate every client";
        let hint = "use another listener for client certificates";
        linter.checker.fault(&below(key, "clientCA"), message, hint);
    }
    if listener.hosts.is_empty() {
        let message = "other customers of the provider can point their own names here";
        linter.checker.fault(&below(key, "hosts"), message, "set the host names of this listener");
    }
}

struct UpstreamIdentity<'c> {
    listener: &'c ListenerConfig,
    certificate: Option<Certificate>,
}

/// Shards distinguish listeners by common name, so listeners with different authentication must not share one.
fn check_upstream_identities(identities: &[UpstreamIdentity<'_>], linter: &mut FileLinter<'_>) {
    for (index, identity) in identities.iter().enumerate() {
        let Some(own) = &identity.certificate else { continue };
        let twin = identities[..index].iter().find(|earlier| {
            let is_same = |other: &Certificate| {
                other.key == own.key || (own.common_name.is_some() && other.common_name == own.common_name)
            };
            earlier.certificate.as_ref().is_some_and(is_same)
                && !has_same_authentication(earlier.listener, identity.listener)
        });
        if let Some(twin) = twin {
            let message = format!(
                "shards see {:?} for the requests of listener {:?} and of listener {:?}, whose authentication differs",
                own.name, identity.listener.name, twin.listener.name
            );
            let hint = "give one of them an upstreamIdentity with a common name of its own, and let shards allow that name";
            linter.checker.fault(&format!("listeners[{index}].upstreamIdentity"), &message, hint);
        }
    }
}

/// Whether a credential gives the same identity at both listeners.
fn has_same_authentication(one: &ListenerConfig, other: &ListenerConfig) -> bool {
    one.client_ca == other.client_ca
        && one.tokens == other.tokens
        && one.authentication == other.authentication
}
