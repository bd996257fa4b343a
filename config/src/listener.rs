//! The settings of one listener.

use serde::{Deserialize, Serialize};

use crate::acme::{AcmeChallenge, ListenerAcmeConfig};
use crate::authentication::AuthenticationConfig;
use crate::check::Checker;
use crate::quota::ListenerQuotasConfig;
use crate::setting::{plain_settings, settings};
use crate::shared::{NamedCertificateConfig, ServingConfig};
use crate::tracing::TraceContextPolicy;
use crate::units::Timespan;
use crate::values::{InputFile, OwnPath, SecretFile, TlsVersion, TokenPolicy};

settings! {
    /// A listener.
    pub struct ListenerConfig {
        /// Name in logs and metrics.
        name ("name"): String = "internal".to_owned();
        /// Address and serving certificate.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// A Unix socket to listen on in place of serving.address, also with TLS. The permissions of its file limit who may
        /// connect.
        socket ("socket"): Option<SocketConfig> = None;
        /// PEM bundle: authorities of client certificates. Without it certificates do not authenticate here.
        /// Flag: --client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// Bearer tokens that the gateway cannot verify: passThrough (the shard verifies them) or refuse (401).
        tokens ("tokens"): TokenPolicy = TokenPolicy::PassThrough;
        /// Other authentication methods, and filters of groups.
        authentication ("authentication"): AuthenticationConfig = AuthenticationConfig::default();
        /// Whether requests with a service account's token and a path outside of /clusters/ and /services/ go to the account's
        /// workspace, so that clients with in-cluster configuration work.
        in_cluster_clients ("inClusterClients"): bool = true;
        /// Peers that may connect, and how they pass the address of their clients.
        peers ("peers"): PeersConfig = PeersConfig::default();
        /// Host names of this listener; *.example.com is all names one level below. A request for another name gets 421, also over
        /// a connection that was opened for a valid one. Empty: any.
        hosts ("hosts"): Vec<String> = Vec::new();
        /// Whether requests are authenticated before their workspace is resolved, so that clients without a credential cannot probe
        /// for workspaces. Tokens that only shards can verify are then invalid.
        authenticate_before_routing ("authenticateBeforeRouting"): bool = false;
        /// Identities that get 403, among those that this listener authenticates.
        deny ("deny"): DenyConfig = DenyConfig::default();
        /// Protocols that a connection may be upgraded to. Empty: any. CDNs support websocket only.
        upgrades ("upgrades"): Vec<UpgradeProtocol> = Vec::new();
        /// Whether responses get Cache-Control: no-store. A CDN may cache by the suffix of the path, and objects may be named x.js.
        cache_control_no_store ("cacheControlNoStore"): bool = false;
        /// Interval after which a space is written to an idle JSON watch, so that intermediaries do not time it out (CloudFlare does
        /// after 100 s). Unset: never.
        watch_keep_alive ("watchKeepAlive"): Option<Timespan> = None;
        /// Quotas of requests and connections.
        quotas ("quotas"): ListenerQuotasConfig = ListenerQuotasConfig::default();
        /// Use of a client's trace context (traceparent, tracestate): continue or restart. Public listeners use restart, so that
        /// clients can neither force traces nor join the trace of another client.
        trace_context ("traceContext"): TraceContextPolicy = TraceContextPolicy::Continue;
        /// TLS versions, protocols and additional certificates.
        tls ("tls"): ListenerTlsConfig = ListenerTlsConfig::default();
        /// The client certificate towards shards for requests of this listener, in place of upstream.certificate. By its common name
        /// shards can distinguish listeners and trust them differently.
        upstream_identity ("upstreamIdentity"): Option<UpstreamIdentityConfig> = None;
        /// Whether shards may request placement of workspaces here.
        placement_endpoint ("placementEndpoint"): bool = false;
        /// Whether the admin page is served here to operators (group system:kcp:admin), at /services/fairlead/admin/. It needs
        /// client certificates, for which browsers prompt their users.
        admin_page ("adminPage"): bool = false;
    }

    /// A Unix socket.
    pub struct SocketConfig {
        /// File of the socket. A stale one is replaced; one that a process listens on is not.
        path ("path"): OwnPath = "gateway.sock".into();
        /// Permissions of the file, octal: users with write permission may connect. Its owner is the user of the process.
        mode ("mode"): String = "0600".to_owned();
    }

    /// The TLS policy of a listener.
    pub struct ListenerTlsConfig {
        /// Oldest TLS version: "1.2" or "1.3". Flag: --tls-min-version.
        minimum_version ("minimumVersion"): TlsVersion = TlsVersion::Tls12;
        /// IANA names of cipher suites. Empty: the safe ones. Flag: --tls-cipher-suites.
        cipher_suites ("cipherSuites"): Vec<String> = Vec::new();
        /// Whether HTTP/2 is offered. Flag: --disable-http2-serving.
        http2 ("http2"): bool = true;
        /// Additional certificates, by the server name that a client requests (SNI). Flag: --tls-sni-cert-key.
        server_names ("serverNames"): Vec<NamedCertificateConfig> = Vec::new();
        /// Obtains the certificate for `hosts` by ACME, in place of serving.certificate and privateKey. Until then the listener
        /// presents a self-signed one.
        acme ("acme"): Option<ListenerAcmeConfig> = None;
        /// PEM bundle: authorities of a certificate that every peer must present, such as that of a CDN. It is required for a
        /// connection and never authenticates a user.
        transport_client_ca ("transportClientCA"): Option<InputFile> = None;
    }

    /// Peers that may connect, and how they pass the address of their clients.
    pub struct PeersConfig {
        /// File with the networks that may connect, one per line, with # for comments. It is reloaded when it changes. Unset: every
        /// address may connect.
        allow ("allow"): Option<InputFile> = None;
        /// Header in which a peer passes the address of its client, such as CF-Connecting-IP. It is removed, and X-Forwarded-For is
        /// set to that address alone; other headers of proxies about addresses and certificates (Forwarded, X-Real-IP,
        /// True-Client-IP, Client-Cert and the like) are removed, too. Other listeners also remove this header. Together with
        /// proxyProtocol only if tls.transportClientCA authenticates the peer behind the load balancer.
        client_address_header ("clientAddressHeader"): Option<String> = None;
        /// Whether every connection begins with a header of the PROXY protocol (version 1 or 2), before TLS, in which a TCP load
        /// balancer passes the address of its client.
        proxy_protocol ("proxyProtocol"): bool = false;
    }

    /// Identities that get 403 although their credential is valid.
    pub struct DenyConfig {
        /// Names of users, exact or with * at the end.
        users ("users"): Vec<String> = Vec::new();
        /// Groups, exact or with * at the end. Groups that are only to be removed belong in dropGroups.
        groups ("groups"): Vec<String> = Vec::new();
        /// Whether impersonation (Impersonate-User and the like) gets 403.
        impersonation ("impersonation"): bool = false;
    }

    /// The client certificate towards shards for requests of one listener.
    pub struct UpstreamIdentityConfig {
        /// PEM file: the client certificate for which shards trust the X-Remote-* headers of these requests.
        certificate ("certificate"): InputFile = "front-proxy.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "front-proxy.key".into();
    }
}

/// A protocol that a connection can be upgraded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpgradeProtocol {
    /// RFC 6455.
    Websocket,
    /// SPDY/3.1, which kubectl before 1.31 uses for exec, attach and port-forward.
    Spdy,
}

plain_settings!(UpgradeProtocol);

impl SocketConfig {
    /// The permissions, if they are valid.
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
        if !self.authenticates() {
            let message = "authenticateBeforeRouting is set, but there is no authentication method";
            let hint = "set clientCA, or a method of authentication";
            checker.fault("authenticateBeforeRouting", message, hint);
        }
        if self.authentication.workspaces {
            let message = "issuers of a workspace are not known before the workspace is resolved";
            checker.fault(
                "authenticateBeforeRouting",
                message,
                "leave out authentication.workspaces or authenticateBeforeRouting",
            );
        }
    }

    /// Whether there is an authentication method.
    fn authenticates(&self) -> bool {
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
        let requires_transport_certificate = self.tls.transport_client_ca.is_some();
        let authenticates_certificates =
            self.client_ca.is_some() || self.authentication.request_header.client_ca.is_some();
        if requires_transport_certificate && authenticates_certificates {
            let message = "the transport certificate of a peer must not authenticate a user";
            let hint = "use another listener without transportClientCA for client certificates";
            checker.fault("tls.transportClientCA", message, hint);
        }
        if let Some(socket) = &self.socket {
            if socket.mode().is_none() {
                let message = format!("{:?} is not a file mode", socket.mode);
                checker.fault("socket.mode", &message, "three octal digits, such as 0660");
            }
            if self.peers.allow.is_some() {
                let message = "peers on a Unix socket have no address";
                checker.fault("peers.allow", message, "limit access by socket.mode");
            }
            let has_no_addresses = !self.peers.proxy_protocol && self.peers.client_address_header.is_none();
            if has_no_addresses && self.quotas.per_address.is_set() {
                let message = "without client addresses all clients of a Unix socket share one quota";
                let hint =
                    "set peers.proxyProtocol or peers.clientAddressHeader, or leave out quotas.perAddress";
                checker.fault("quotas.perAddress", message, hint);
            }
        }
        let is_open = self.peers.allow.is_none() && self.socket.is_none();
        if self.peers.client_address_header.is_some() && is_open && !requires_transport_certificate {
            let message = "any client could forge its address";
            let hint =
                "set peers.allow or tls.transportClientCA, so that only those peers may set the header";
            checker.fault("peers.clientAddressHeader", message, hint);
        }
        if self.peers.proxy_protocol && is_open {
            let message = "any client could forge its address";
            checker.fault(
                "peers.proxyProtocol",
                message,
                "set peers.allow to the networks of the load balancers",
            );
        }
        if self.peers.client_address_header.is_some()
            && self.peers.proxy_protocol
            && !requires_transport_certificate
        {
            let message = "clients behind the load balancer could forge their address: peers.allow applies to load balancers, which \
                           do not inspect the requests";
            let hint = "set tls.transportClientCA, so that only those peers may set the header, or remove one of the two settings";
            checker.fault("peers.clientAddressHeader", message, hint);
        }
        if let Some(header) = &self.peers.client_address_header {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if header.is_empty() || !header.bytes().all(is_name) {
                let message = format!("{header:?} is not a header name");
                checker.fault("peers.clientAddressHeader", &message, "such as CF-Connecting-IP");
            }
        }
    }

    fn check_acme(&self, checker: &mut Checker) {
        let Some(acme) = &self.tls.acme else { return };
        if self.hosts.is_empty() {
            let message = "the names for the certificate are missing";
            checker.fault("tls.acme", message, "name them in hosts");
        }
        if let Some(host) = self.hosts.iter().find(|host| host.starts_with("*.")) {
            let message = format!("{} cannot validate {host:?}", acme.challenge.name());
            checker.fault("tls.acme", &message, "name each host, or obtain the certificate in another way");
        }
        let is_address = |host: &String| host.parse::<std::net::IpAddr>().is_ok();
        if acme.challenge == AcmeChallenge::TlsAlpn01 && self.hosts.iter().any(is_address) {
            let message = "IP addresses cannot be validated by tls-alpn-01 here";
            checker.fault("tls.acme.challenge", message, "use http-01");
        }
        let is_restricted =
            self.tls.transport_client_ca.is_some() || self.peers.allow.is_some() || self.peers.proxy_protocol;
        if acme.challenge == AcmeChallenge::TlsAlpn01 && is_restricted {
            let message = "the authority connects to this listener, whose peers are restricted";
            checker.fault("tls.acme.challenge", message, "use http-01");
        }
    }

    fn check_names(&self, checker: &mut Checker) {
        for (index, host) in self.hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
            if name.is_empty() || !name.bytes().all(is_name) {
                let message = format!("{host:?} is not a host name");
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
                let message = format!("{pattern:?} is not a valid pattern");
                checker.fault(
                    &format!("deny.{key}"),
                    &message,
                    "a name, or a prefix of names with * at the end",
                );
            }
        }
    }
}
