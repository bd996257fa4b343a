//! Certificates and authorities are replaced, the new beside the old ones first.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::clients::Credentials;
use crate::installation::Installation;
use crate::pki::Authority;
use crate::{LIMIT, SECOND};

const SERVING: &str = "serving certificate of listener internal";
const CREDENTIALS: &str = "credentials of listener internal";

/// The gateway's own certificate is renewed, and then is one of another authority.
pub fn of_the_serving_certificate(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        let world = &installation.world;
        let other = Authority::new("another serving authority");
        let believed = [&world.serving_ca, &other];
        installation.load.clients.change_credentials(Credentials::new(&believed, &world.client_ca));
        let directory = world.directory.path();
        world.serving_ca.server().write(directory, "tls");
        installation.reload(SERVING).await;
        installation.load.goes_on_for(SECOND / 2).await;
        other.server().write(directory, "tls");
        // The answer about the reload comes on a connection from before.
        installation.reload(SERVING).await;
        installation.client(&world.user(), &other).await.expect("the new certificate is not shown");
        installation.load.goes_on_for(SECOND).await;
        world.serving_ca.server().write(directory, "tls");
        installation.reload_as_seen_by(&other, SERVING).await;
        installation.client(&world.user(), &world.serving_ca).await.expect("the old one does not come back");
        installation.load.goes_on_for(SECOND / 2).await;
    }
    .boxed()
}

/// Clients get certificates of another authority, and the old one goes; and back again.
pub fn of_the_clients_authority(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        let world = &installation.world;
        let next = Authority::new("the clients' next authority");
        let bundle = installation.file("client-ca.crt");
        let (old, new) = (&world.client_ca, &next);
        // The operator who asks for metrics has a certificate of the old one, so that it goes last of all.
        for (before, after) in [(old, new), (new, old)] {
            std::fs::write(&bundle, format!("{}{}", before.pem, after.pem)).unwrap();
            installation.reload_by(before, CREDENTIALS).await;
            installation.load.goes_on_for(SECOND / 2).await;
            let open = installation.client(&before.client("early", &[]), &world.serving_ca).await.unwrap();
            let path = format!("/clusters/{}/api", installation.party("alpha").workspace());
            assert_eq!(open.get(&path).await.status, 200);
            installation.load.clients.change_credentials(Credentials::new(&[&world.serving_ca], after));
            // Requests sent with the old certificates get their responses before these certificates are removed.
            drop(installation.load.pause().await);
            installation.load.goes_on_for(SECOND / 2).await;
            std::fs::write(&bundle, &after.pem).unwrap();
            installation.reload_by(after, CREDENTIALS).await;
            assert_eq!(open.get(&path).await.status, 401, "the old authority still counts");
            installation.load.goes_on_for(SECOND / 2).await;
        }
    }
    .boxed()
}

/// The gateway gets a certificate of another authority, shards do, and the credentials of the index are renewed.
pub fn towards_shards(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        let world = &installation.world;
        let directory = world.directory.path();
        let (proxies, servers) = (Authority::new("next front proxies"), Authority::new("next servers"));
        let credential = installation.upstream_credential();
        let (old_servers, old_proxies) = (&world.serving_ca, &world.front_proxy_ca);
        let shards_show = |server: &Authority, clients: &[&Authority]| {
            for shard in installation.shards() {
                shard.state.set_tls(server.server().server_config(clients));
            }
        };
        for (server, next_server, proxy, next_proxy, name) in [
            (old_servers, &servers, old_proxies, &proxies, "next-front-proxy"),
            (&servers, old_servers, &proxies, old_proxies, "kcp-front-proxy"),
        ] {
            // First the authorities that shards trust.
            shards_show(server, &[&world.client_ca, proxy, next_proxy]);
            next_proxy.client(name, &[]).write(directory, "front-proxy");
            installation.reload(credential).await;
            let echo = installation.echo(installation.party("alpha")).await;
            assert_eq!(echo["peer"], name);
            shards_show(server, &[&world.client_ca, next_proxy]);
            installation.load.goes_on_for(SECOND / 2).await;
            // Then the authorities that the gateway trusts.
            let bundle = installation.file("serving-ca.crt");
            std::fs::write(&bundle, format!("{}{}", server.pem, next_server.pem)).unwrap();
            installation.reload(credential).await;
            shards_show(next_server, &[&world.client_ca, next_proxy]);
            installation.load.goes_on_for(SECOND / 2).await;
            world.client_ca.client("shard-admin", &["system:masters"]).write(directory, "shard-admin");
            std::fs::write(&bundle, &next_server.pem).unwrap();
            installation.reload(credential).await;
            installation.load.goes_on_for(SECOND / 2).await;
            // The index has to come back with what is new.
            timeout(LIMIT, installation.cut_the_index()).await.expect("the index does not come back");
        }
    }
    .boxed()
}
