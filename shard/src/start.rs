//! `fairlead-shard start`: the files that a shard creates in its root directory before it runs.

use fairlead_certs::{Error, Host, create_private_folder, write_serving_chain, write_signing_key};
use fairlead_config::ShardConfig;
use fairlead_config::flags::ShardFlags;

/// Creates the root directory, and the certificate and key that no flag names, if they do not exist yet.
///
/// # Errors
/// A file cannot be written.
pub fn create_files(flags: &ShardFlags) -> Result<(), Error> {
    create_private_folder(&flags.root_directory)?;
    if let Some(files) = &flags.self_signed
        && !(files.certificate.exists() && files.private_key.exists())
    {
        write_serving_chain(&files.certificate, &files.private_key, &serving_hosts(&flags.config))?;
    }
    if let Some(key) = flags.service_account_key.as_deref().filter(|key| !key.exists()) {
        write_signing_key(key)?;
    }
    if let Some(folder) = flags.config.store.path.parent() {
        create_private_folder(folder)?;
    }
    Ok(())
}

/// The hosts by which clients reach the shard.
fn serving_hosts(config: &ShardConfig) -> Vec<Host> {
    let base_url = config.base_url();
    let authority = base_url.authority();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    let address = config.serving.address.ip();
    let mut hosts = vec![Host::Name("localhost".to_owned()), Host::Address([127, 0, 0, 1].into())];
    let further = match host.parse() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(host.to_owned()),
    };
    for host in [further, Host::Address(address)] {
        let is_unspecified = matches!(host, Host::Address(address) if address.is_unspecified());
        if !is_unspecified && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}
