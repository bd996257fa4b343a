//! The settings of one door: a listener with its identity policy.

use serde::{Deserialize, Serialize};

use crate::acme::{AcmeChallenge, ListenerAcmeConfig};
use crate::authentication::AuthenticationConfig;
use crate::check::Checker;
use crate::quota::ListenerQuotasConfig;
use crate::setting::{plain_settings, settings};
use crate::shared::ServingConfig;
use crate::tracing::TraceContextPolicy;
use crate::units::Timespan;
use crate::values::{InputFile, OwnPath, SecretFile, TlsVersion, TokenPolicy};

settings! {
    /// A listener with its identity policy.
    pub struct ListenerConfig {
        /// Its name in logs and metrics.
        name ("name"): String = "internal".to_owned();
        /// Where it listens, and what it presents.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// A Unix socket to listen on in place of serving.address. TLS is spoken there as well; who may connect is said by
        /// the permissions of its file.
        socket ("socket"): Option<SocketConfig> = None;
        /// PEM bundle: authorities of client certificates. Without it no certificate is an identity at this door.
        /// Flag: --client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// What happens to bearer tokens: passThrough (the shard judges them) or refuse.
        tokens ("tokens"): TokenPolicy = TokenPolicy::PassThrough;
        /// Further proofs of identity, and which groups count.
        authentication ("authentication"): AuthenticationConfig = AuthenticationConfig::default();
        /// Requests that begin with neither /clusters/ nor /services/ and carry a service account's token are taken to
        /// be for the account's own workspace, so that clients with in-cluster configuration work.
        in_cluster_clients ("inClusterClients"): bool = true;
        /// Who may connect, and what such peers say about their clients.
        peers ("peers"): PeersConfig = PeersConfig::default();
        /// Names by which clients ask for this door, *.example.com for all one level below. A request for another name gets
        /// 421, also one over a connection that was made for another. Empty means any.
        hosts ("hosts"): Vec<String> = Vec::new();
        /// Whether requests are judged before their workspace is looked for, so that nobody can find out which there are. A
        /// token that only shards could judge is then no credential.
        authenticate_before_routing ("authenticateBeforeRouting"): bool = false;
        /// Who is turned away with a good credential, of those who are judged here.
        deny ("deny"): DenyConfig = DenyConfig::default();
        /// The protocols that a connection may be upgraded to; empty means any. A CDN carries websocket only.
        upgrades ("upgrades"): Vec<UpgradeProtocol> = Vec::new();
        /// Whether every answer says that nobody may keep it: a CDN keeps by the end of the path, and objects may be named
        /// x.js.
        cache_control_no_store ("cacheControlNoStore"): bool = false;
        /// How long an open watch in JSON may be silent before its client gets a blank, which means nothing. A CDN gives
        /// up on answers that pause (CloudFlare: after 100 s). Unset, nothing is added.
        watch_keep_alive ("watchKeepAlive"): Option<Timespan> = None;
        /// How much may be asked here.
        quotas ("quotas"): ListenerQuotasConfig = ListenerQuotasConfig::default();
        /// What a client's trace context (traceparent, tracestate) counts: continue or restart. Where strangers come in it is
        /// restart, so that they can neither have their requests traced nor give them the trace of somebody else.
        trace_context ("traceContext"): TraceContextPolicy = TraceContextPolicy::Continue;
        /// Protocols and further certificates.
        tls ("tls"): ListenerTlsConfig = ListenerTlsConfig::default();
        /// Who the gateway is towards shards for what comes in here, in place of upstream.certificate. Shards tell doors apart,
        /// and may believe them differently, by the common names.
        upstream_identity ("upstreamIdentity"): Option<UpstreamIdentityConfig> = None;
        /// Whether shards may ask here on which shard a workspace should live.
        placement_endpoint ("placementEndpoint"): bool = false;
        /// Whether operators (group system:kcp:admin) find a page about the gateway here, at /services/fairlead/admin/. Only with
        /// client certificates, which browsers ask their users for.
        admin_page ("adminPage"): bool = false;
    }

    /// A Unix socket.
    pub struct SocketConfig {
        /// Its file. One that a process has left behind is replaced; one that is listened on never is.
        path ("path"): OwnPath = "gateway.sock".into();
        /// Permissions of the file, octal: whoever may write to it may connect. Its owner is the user of the process.
        mode ("mode"): String = "0600".to_owned();
    }

    /// The TLS policy of a listener.
    pub struct ListenerTlsConfig {
        /// The oldest version spoken: "1.2" or "1.3". Flag: --tls-min-version.
        minimum_version ("minimumVersion"): TlsVersion = TlsVersion::Tls12;
        /// Names of cipher suites, as IANA has them; empty means the safe ones. Flag: --tls-cipher-suites.
        cipher_suites ("cipherSuites"): Vec<String> = Vec::new();
        /// Whether HTTP/2 is offered. Flag: --disable-http2-serving.
        http2 ("http2"): bool = true;
        /// Further certificates, by the name that a client asks for. Flag: --tls-sni-cert-key.
        server_names ("serverNames"): Vec<NamedCertificateConfig> = Vec::new();
        /// Gets the certificate for `hosts` from an authority (ACME), in place of serving.certificate and privateKey. Until
        /// there is one, the door shows one that it has made itself.
        acme ("acme"): Option<ListenerAcmeConfig> = None;
        /// PEM bundle: authorities of a certificate that every peer must show, such as a CDN's for its origins. Without one
        /// there is no connection; it is never anybody's identity.
        transport_client_ca ("transportClientCA"): Option<InputFile> = None;
    }

    /// Who may connect, and what such peers say about their clients.
    pub struct PeersConfig {
        /// File with the networks that connections are accepted from, one per line, # for remarks: a provider's list. It is
        /// read again when it changes; without it every address may connect.
        allow ("allow"): Option<InputFile> = None;
        /// Header in which such a peer says its client's address, as CF-Connecting-IP. It goes no further, and
        /// X-Forwarded-For then holds that address alone; what else proxies say of addresses and certificates (Forwarded,
        /// X-Real-IP, True-Client-IP, Client-Cert and the like) ends here. No other door lets this header through, either.
        /// Together with proxyProtocol only if tls.transportClientCA proves the peer behind the balancer.
        client_address_header ("clientAddressHeader"): Option<String> = None;
        /// Whether every connection begins with the address of its client, before TLS, as load balancers that carry TCP send
        /// it (PROXY protocol, version 1 or 2).
        proxy_protocol ("proxyProtocol"): bool = false;
    }

    /// Who is turned away with a good credential.
    pub struct DenyConfig {
        /// Names of users, exact or with * at the end; they get 403.
        users ("users"): Vec<String> = Vec::new();
        /// Groups, exact or with * at the end, whose members get 403. Groups that merely do not count are dropGroups.
        groups ("groups"): Vec<String> = Vec::new();
        /// Whether requests on behalf of somebody else (Impersonate-User and the like) get 403.
        impersonation ("impersonation"): bool = false;
    }

    /// Who the gateway is towards shards for the requests of one door.
    pub struct UpstreamIdentityConfig {
        /// PEM file: the certificate by which shards believe the X-Remote-* headers of this door's requests.
        certificate ("certificate"): InputFile = "front-proxy.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "front-proxy.key".into();
    }

    /// A certificate for clients that ask for certain names.
    pub struct NamedCertificateConfig {
        /// PEM file: the certificate, then its intermediates.
        certificate ("certificate"): InputFile = "tls.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "tls.key".into();
        /// Names, *.example.com for all one level below; empty means the names in the certificate.
        names ("names"): Vec<String> = Vec::new();
    }
}

/// A protocol that a connection can be upgraded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeProtocol {
    /// RFC 6455.
    Websocket,
    /// SPDY/3.1, which kubectl before 1.31 wants for exec, attach and port-forward.
    Spdy,
}

plain_settings!(UpgradeProtocol);

impl SocketConfig {
    /// The permissions, if they are some.
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777)
    }
}

impl ListenerConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.within("authentication", |checker| self.authentication.check(checker));
        self.check_peers(checker);
        self.check_names(checker);
        self.check_acme(checker);
        checker.within("quotas", |checker| self.quotas.check(checker));
        if self.placement_endpoint && self.client_ca.is_none() {
            let message = "placementEndpoint needs client certificates, but clientCA is not set";
            checker.fault(
                "placementEndpoint",
                message,
                "set clientCA to the bundle that signs shards' certificates",
            );
        }
        if self.admin_page && self.client_ca.is_none() {
            let message = "adminPage needs client certificates, but clientCA is not set";
            checker.fault(
                "adminPage",
                message,
                "set clientCA to the bundle that signs operators' certificates",
            );
        }
        if let Some(pause) = self.watch_keep_alive {
            checker.at_least("watchKeepAlive", pause, Timespan::from_millis(100));
        }
        if !self.authenticate_before_routing {
            return;
        }
        if !self.judges() {
            let message = "authenticateBeforeRouting, but nobody here judges credentials";
            let hint = "set clientCA, or a method of authentication";
            checker.fault("authenticateBeforeRouting", message, hint);
        }
        if self.authentication.workspaces {
            let message =
                "a workspace's own issuers cannot be asked before it is known which workspace it is";
            checker.fault(
                "authenticateBeforeRouting",
                message,
                "leave out authentication.workspaces or authenticateBeforeRouting",
            );
        }
    }

    /// Whether a request can prove an identity here.
    fn judges(&self) -> bool {
        let authentication = &self.authentication;
        self.client_ca.is_some()
            || authentication.request_header.client_ca.is_some()
            || authentication.token_file.is_some()
            || !authentication.service_accounts.key_files.is_empty()
            || authentication.oidc.is_some()
            || authentication.configuration.is_some()
            || authentication.webhook.is_some()
    }

    fn check_peers(&self, checker: &mut Checker) {
        let transport = self.tls.transport_client_ca.is_some();
        let identity = self.client_ca.is_some() || self.authentication.request_header.client_ca.is_some();
        if transport && identity {
            let message = "peers show the certificate of whoever carries their requests, which must be nobody's identity";
            let hint = "give client certificates a door of their own, without transportClientCA";
            checker.fault("tls.transportClientCA", message, hint);
        }
        if let Some(socket) = &self.socket {
            if socket.mode().is_none() {
                let message = format!("{:?} are no permissions", socket.mode);
                checker.fault("socket.mode", &message, "three octal digits, such as 0660");
            }
            if self.peers.allow.is_some() {
                let message = "peers on a Unix socket have no address";
                checker.fault("peers.allow", message, "say with socket.mode who may connect");
            }
            let says_nothing = !self.peers.proxy_protocol && self.peers.client_address_header.is_none();
            if says_nothing && self.quotas.per_address.is_set() {
                let message = "without addresses all clients of a Unix socket count as one";
                let hint =
                    "set peers.proxyProtocol or peers.clientAddressHeader, or leave out quotas.perAddress";
                checker.fault("quotas.perAddress", message, hint);
            }
        }
        let anybody = self.peers.allow.is_none() && self.socket.is_none();
        if self.peers.client_address_header.is_some() && anybody && !transport {
            let message = "anybody could say to be at any address";
            let hint = "set peers.allow or tls.transportClientCA, so that only such peers may say it";
            checker.fault("peers.clientAddressHeader", message, hint);
        }
        if self.peers.proxy_protocol && anybody {
            let message = "anybody could say to be at any address";
            checker.fault(
                "peers.proxyProtocol",
                message,
                "set peers.allow to the networks of the load balancers",
            );
        }
        if self.peers.client_address_header.is_some() && self.peers.proxy_protocol && !transport {
            let message = "whoever comes through the load balancer could say to be at any address: peers.allow is about the \
                           balancers, which do not look into what they carry";
            let hint =
                "set tls.transportClientCA, so that only such peers may say it, or leave out one of the two";
            checker.fault("peers.clientAddressHeader", message, hint);
        }
        if let Some(header) = &self.peers.client_address_header {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if header.is_empty() || !header.bytes().all(is_name) {
                let message = format!("{header:?} is no name of a header");
                checker.fault("peers.clientAddressHeader", &message, "such as CF-Connecting-IP");
            }
        }
    }

    fn check_acme(&self, checker: &mut Checker) {
        let Some(acme) = &self.tls.acme else { return };
        if self.hosts.is_empty() {
            let message = "the names are missing that a certificate is to be got for";
            checker.fault("tls.acme", message, "name them in hosts");
        }
        if let Some(host) = self.hosts.iter().find(|host| host.starts_with("*.")) {
            let message = format!("nobody can show by {} to own {host:?}", acme.challenge.name());
            checker.fault("tls.acme", &message, "name each host, or get the certificate in another way");
        }
        let is_address = |host: &String| host.parse::<std::net::IpAddr>().is_ok();
        if acme.challenge == AcmeChallenge::TlsAlpn01 && self.hosts.iter().any(is_address) {
            let message = "an address cannot be shown to be one's own by tls-alpn-01 here";
            checker.fault("tls.acme.challenge", message, "use http-01");
        }
        let closed =
            self.tls.transport_client_ca.is_some() || self.peers.allow.is_some() || self.peers.proxy_protocol;
        if acme.challenge == AcmeChallenge::TlsAlpn01 && closed {
            let message = "the authority connects to the door itself, and is none of the peers that may";
            checker.fault("tls.acme.challenge", message, "use http-01");
        }
    }

    fn check_names(&self, checker: &mut Checker) {
        for (index, host) in self.hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
            if name.is_empty() || !name.bytes().all(is_name) {
                let message = format!("{host:?} is no name of a host");
                checker.fault(
                    &format!("hosts[{index}]"),
                    &message,
                    "without scheme and port, such as api.example.com",
                );
            }
        }
        let patterns = [("users", &self.deny.users), ("groups", &self.deny.groups)];
        for (key, pattern) in
            patterns.into_iter().flat_map(|(key, all)| all.iter().map(move |one| (key, one)))
        {
            if pattern.is_empty() || pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
                let message = format!("{pattern:?} matches nothing that it seems to");
                checker.fault(
                    &format!("deny.{key}"),
                    &message,
                    "a name, or how names begin and * at the end",
                );
            }
        }
    }
}
