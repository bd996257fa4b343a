//! Rules about the gateway's doors: who gets in by what, and whether shards can tell.

use std::path::Path;

use fairlead_config::{GatewayConfig, ListenerConfig, TokenPolicy};

use crate::certificate::{Certificate, Usage};
use crate::issuers;
use crate::kubeconfigs::Use;
use crate::pairs::below;
use crate::survey::{Meaning, Survey};

pub(crate) fn inspect(config: &GatewayConfig, survey: &mut Survey<'_>) {
    let usual = upstream(config, survey);
    let mut senders = Vec::new();
    for (index, door) in config.listeners.iter().enumerate() {
        let key = format!("listeners[{index}]");
        shown(door, &key, survey);
        believed(door, &key, survey);
        refused(door, &key, survey);
        edge(door, &key, survey);
        let own = door.upstream_identity.as_ref().map(|own| {
            survey.pair(&below(&key, "upstreamIdentity"), &own.certificate, &own.private_key, Usage::Client)
        });
        senders.push(Sender { door, certificate: own.unwrap_or_else(|| usual.clone()) });
    }
    told_apart(&senders, survey);
}

/// Who the gateway is for shards, as far as doors do not say otherwise.
fn upstream(config: &GatewayConfig, survey: &mut Survey<'_>) -> Option<Certificate> {
    let upstream = &config.upstream;
    // With a mapping file, that one says it.
    let usual = config.paths.mapping_file.is_none().then(|| {
        survey.bundle("upstream.serverCA", &upstream.server_ca, Meaning::Server);
        survey.pair("upstream", &upstream.certificate, &upstream.private_key, Usage::Client)
    });
    for (index, shard) in upstream.shards.iter().enumerate() {
        let key = format!("upstream.shards[{index}]");
        if let (Some(certificate), Some(private_key)) = (&shard.certificate, &shard.private_key) {
            survey.pair(&key, certificate, private_key, Usage::Client);
        }
        if let Some(file) = &shard.server_ca {
            survey.bundle(&below(&key, "serverCA"), file, Meaning::Server);
        }
        if let Some(file) = &shard.kubeconfig {
            survey.kubeconfig(&below(&key, "kubeconfig"), file, Use::User);
        }
    }
    let index = &config.index;
    survey.kubeconfig("index.rootShardKubeconfig", &index.root_shard_kubeconfig, Use::Context(None));
    survey.kubeconfig("index.shardsKubeconfig", &index.shards_kubeconfig, Use::User);
    for (number, file) in index.shard_peer_kubeconfigs.iter().enumerate() {
        survey.kubeconfig(&format!("index.shardPeerKubeconfigs[{number}]"), file, Use::Context(None));
    }
    usual.flatten()
}

/// What a door shows its clients, and whether it fits the names that they ask for.
fn shown(door: &ListenerConfig, key: &str, survey: &mut Survey<'_>) {
    // What comes from an authority is for the names that were asked for.
    let default = match &door.tls.acme {
        None => survey.serving(&below(key, "serving"), &door.serving),
        Some(_) => None,
    };
    let mut named = Vec::new();
    for (index, entry) in door.tls.server_names.iter().enumerate() {
        let at = format!("{key}.tls.serverNames[{index}]");
        let Some(leaf) = survey.pair(&at, &entry.certificate, &entry.private_key, Usage::Server) else {
            continue;
        };
        for name in &entry.names {
            if !leaf.is_named(name) {
                let message =
                    format!("the certificate is not for {name:?}, but for {}", leaf.names().join(", "));
                survey.checker.fault(
                    &below(&at, "names"),
                    &message,
                    "clients that ask for this name would refuse it",
                );
            }
        }
        let names = if entry.names.is_empty() { leaf.names() } else { entry.names.clone() };
        named.push((names, leaf));
    }
    for (index, host) in door.hosts.iter().enumerate() {
        let Some(leaf) = picked(host, &named).or(default.as_ref()) else { continue };
        if !leaf.is_named(host) {
            let message =
                format!("clients that ask for {host:?} get a certificate for {}", leaf.names().join(", "));
            let hint = "let the name be among its subject alternative names, or add a certificate to tls.serverNames";
            survey.checker.fault(&format!("{key}.hosts[{index}]"), &message, hint);
        }
    }
}

/// As a door picks: an exact name before a wildcard.
fn picked<'n>(host: &str, named: &'n [(Vec<String>, Certificate)]) -> Option<&'n Certificate> {
    let with = |wanted: &str| {
        let found =
            named.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(wanted)));
        found.map(|(_, leaf)| leaf)
    };
    with(host).or_else(|| with(&format!("*.{}", host.split_once('.')?.1)))
}

/// Whom a door believes.
fn believed(door: &ListenerConfig, key: &str, survey: &mut Survey<'_>) {
    let authentication = &door.authentication;
    let headers = &authentication.request_header;
    for (at, file, meaning) in [
        ("clientCA", &door.client_ca, Meaning::Identity),
        ("authentication.requestHeader.clientCA", &headers.client_ca, Meaning::Proxy),
        ("tls.transportClientCA", &door.tls.transport_client_ca, Meaning::Transport),
    ] {
        if let Some(file) = file {
            survey.bundle(&below(key, at), file, meaning);
        }
    }
    if headers.client_ca.is_some() && headers.allowed_names.is_empty() {
        let message =
            "whoever has a certificate of requestHeader.clientCA can say to be anybody, whatever its name";
        let at = below(key, "authentication.requestHeader.allowedNames");
        survey.checker.fault(&at, message, "name the proxies' common names, such as kcp-mounts-proxy");
    }
    if let Some(webhook) = &authentication.webhook {
        survey.kubeconfig(
            &below(key, "authentication.webhook.kubeconfig"),
            &webhook.kubeconfig,
            Use::Context(None),
        );
    }
    issuers::inspect(authentication, &below(key, "authentication"), survey);
    survey.networks(&below(key, "peers.allow"), door.peers.allow.as_deref());
}

/// Names and groups are refused only of those whom the door itself knows: what is passed on has neither.
fn refused(door: &ListenerConfig, key: &str, survey: &mut Survey<'_>) {
    let refused = &door.deny;
    if (refused.users.is_empty() && refused.groups.is_empty()) || door.tokens == TokenPolicy::Refuse {
        return;
    }
    let authentication = &door.authentication;
    // Where somebody here judges tokens, whom nobody knows is turned away.
    let judges_tokens = authentication.token_file.is_some()
        || !authentication.service_accounts.key_files.is_empty()
        || authentication.oidc.is_some()
        || authentication.configuration.is_some()
        || authentication.webhook.is_some();
    if !judges_tokens {
        let message = "tokens pass through to shards here, and whose they are is not known before: nobody is refused who has one";
        let hint = "tokens: refuse, or let the door judge tokens itself (authentication)";
        survey.checker.fault(&below(key, "deny"), message, hint);
    }
}

/// A door whose peers carry other people's requests: they end the clients' TLS.
fn edge(door: &ListenerConfig, key: &str, survey: &mut Survey<'_>) {
    let is_carried = door.tls.transport_client_ca.is_some() || door.peers.client_address_header.is_some();
    if !is_carried {
        return;
    }
    let has_list = door.peers.allow.as_deref().is_some_and(|file: &Path| !file.as_os_str().is_empty());
    if !has_list {
        let message = "whoever finds this door's address can go round the provider";
        let hint = "name the provider's list of networks, which it publishes";
        survey.checker.fault(&below(key, "peers.allow"), message, hint);
    }
    if door.client_ca.is_some() && door.tls.transport_client_ca.is_none() {
        let message = "peers that say whose request it is end their clients' TLS: the only certificate that comes here is \
                       their own, and would be everybody's identity";
        let hint = "give client certificates a door of their own";
        survey.checker.fault(&below(key, "clientCA"), message, hint);
    }
    if door.hosts.is_empty() {
        let message = "the provider's other customers can have their own names lead here";
        survey.checker.fault(
            &below(key, "hosts"),
            message,
            "name the hosts by which clients ask for this door",
        );
    }
}

struct Sender<'c> {
    door: &'c ListenerConfig,
    certificate: Option<Certificate>,
}

/// Shards go by the common name: doors that prove identities differently must not share one.
fn told_apart(senders: &[Sender<'_>], survey: &mut Survey<'_>) {
    for (index, sender) in senders.iter().enumerate() {
        let Some(own) = &sender.certificate else { continue };
        let twin = senders[..index].iter().find(|earlier| {
            let is_same = |other: &Certificate| {
                other.key == own.key || (own.common_name.is_some() && other.common_name == own.common_name)
            };
            earlier.certificate.as_ref().is_some_and(is_same) && !same_policy(earlier.door, sender.door)
        });
        if let Some(twin) = twin {
            let message = format!(
                "shards see {:?} behind the requests of door {:?} and of door {:?}, though these prove identities differently",
                own.name, sender.door.name, twin.door.name
            );
            let hint = "give one of them an upstreamIdentity with a common name of its own, and let shards allow that name";
            survey.checker.fault(&format!("listeners[{index}].upstreamIdentity"), &message, hint);
        }
    }
}

/// Whether the same credential is the same identity at both.
fn same_policy(one: &ListenerConfig, other: &ListenerConfig) -> bool {
    one.client_ca == other.client_ca
        && one.tokens == other.tokens
        && one.authentication == other.authentication
}
