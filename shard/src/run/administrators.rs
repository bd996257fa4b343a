//! The administrators of a shard: their tokens, and the kubeconfig with them.
//!
//! The token of shard-admin stays the same over restarts: the kubeconfig has it, and a file beside has its hash. All other
//! tokens are new at each start, and are never stored by the shard.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fairlead_authn::UserInfo;
use fairlead_client::{Cluster, Context, KeyMaterial, Kubeconfig, KubeconfigError, User};
use fairlead_config::{AdminAccessConfig, Battery, ShardConfig};
use sha2::{Digest, Sha256};

/// The member of system:masters on this shard.
const SHARD_ADMIN: &str = "shard-admin";
/// The administrator of all workspaces, except system ones.
const KCP_ADMIN: &str = "kcp-admin";
/// A user without rights of its own.
const USER: &str = "user";

type TokenHash = [u8; 32];

/// The administrators and their new tokens.
pub(super) struct Administrators {
    files: AdminAccessConfig,
    /// `None` if the kubeconfig must have it.
    shard_admin_token: Option<String>,
    shard_admin_hash: TokenHash,
    kcp_admin_token: String,
    user_token: Option<String>,
}

/// The administrators' files cannot be used or written; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum AdministratorError {
    /// The kubeconfig was replaced, or the hash was.
    #[error(
        "admin token in file {:?} is not valid anymore. Remove file {:?} and restart kcp",
        kubeconfig.display().to_string(), token_hash.display().to_string()
    )]
    OtherToken {
        /// The kubeconfig.
        kubeconfig: PathBuf,
        /// The file with the hash.
        token_hash: PathBuf,
    },
    /// There is a hash, but no kubeconfig with the token.
    #[error("cannot create the 'admin.kubeconfig' file with an empty token for the shard-admin user")]
    NoToken {
        /// The file with the hash.
        token_hash: PathBuf,
    },
    /// The file with the hash is no hash.
    #[error("{} has no SHA-256 hash", .0.display())]
    Malformed(PathBuf),
    /// The system refuses access to a file.
    #[error("{} cannot be used", file.display())]
    Access {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file with the hash cannot be written.
    #[error(transparent)]
    Write(#[from] fairlead_certs::Error),
    /// The kubeconfig is malformed or cannot be written.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

impl AdministratorError {
    /// Advice for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoToken { token_hash } | Self::Malformed(token_hash) => {
                Some(format!("remove {} and restart: the token of shard-admin changes", token_hash.display()))
            }
            _ => None,
        }
    }
}

impl Administrators {
    /// Creates the tokens; writes nothing.
    pub(super) fn create(config: &ShardConfig) -> Result<Option<Self>, AdministratorError> {
        let Some(files) = config.admin_access.clone() else { return Ok(None) };
        let (shard_admin_token, shard_admin_hash) = match stored_hash(&files.token_hash)? {
            Some(hash) => (None, hash),
            None => {
                let token = new_token();
                let hash = hash(&token);
                (Some(token), hash)
            }
        };
        Ok(Some(Self {
            files,
            shard_admin_token,
            shard_admin_hash,
            kcp_admin_token: new_token(),
            user_token: config.batteries.contains(&Battery::User).then(new_token),
        }))
    }

    /// The users by the hashes of their tokens. Their UIDs are new at each start.
    pub(super) fn users(&self) -> Vec<(TokenHash, UserInfo)> {
        let user = |name: &str, groups: &[&str]| UserInfo {
            name: name.to_owned(),
            uid: Some(uuid::Uuid::new_v4().to_string()),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        };
        let mut users = vec![
            (self.shard_admin_hash, user(SHARD_ADMIN, &["system:masters"])),
            (hash(&self.kcp_admin_token), user(KCP_ADMIN, &["system:kcp:admin"])),
        ];
        users.extend(self.user_token.as_deref().map(|token| (hash(token), user(USER, &[]))));
        users
    }

    /// Writes the kubeconfig for a shard at `url` whose serving certificates are `certificate`, which clients trust. Then
    /// writes the hash of shard-admin's token if it is new.
    pub(super) fn write_files(&self, url: &str, certificate: &Path) -> Result<(), AdministratorError> {
        let shard_admin_token = match &self.shard_admin_token {
            Some(token) => token.clone(),
            None => self.kept_token()?,
        };
        let authority = std::fs::read(certificate)
            .map_err(|source| AdministratorError::Access { file: certificate.to_owned(), source })?;
        let mut kubeconfig = Kubeconfig::empty();
        for (name, path) in
            [("root", "/clusters/root"), ("base", ""), ("system:admin", "/clusters/system:admin")]
        {
            let cluster = Cluster {
                server: format!("{url}{path}"),
                certificate_authority: Some(KeyMaterial::Inline(authority.clone())),
                ..Cluster::default()
            };
            kubeconfig.set_cluster(name, &cluster);
        }
        let mut users = vec![(KCP_ADMIN, self.kcp_admin_token.clone()), (SHARD_ADMIN, shard_admin_token)];
        let mut contexts = vec![
            ("root", "root", KCP_ADMIN),
            ("base", "base", KCP_ADMIN),
            ("system:admin", "system:admin", SHARD_ADMIN),
            ("shard-base", "base", SHARD_ADMIN),
        ];
        if let Some(token) = &self.user_token {
            users.push((USER, token.clone()));
            contexts.push((USER, "root", USER));
        }
        for (name, token) in users {
            let token = Some(KeyMaterial::Inline(token.into_bytes()));
            kubeconfig.set_user(name, &User { token, ..User::default() });
        }
        for (name, cluster, user) in contexts {
            let context = Context { cluster: cluster.to_owned(), user: user.to_owned(), namespace: None };
            kubeconfig.set_context(name, &context);
        }
        kubeconfig.set_current_context("root");
        let folder = self.files.kubeconfig.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fairlead_certs::create_private_folder(folder)?;
        }
        kubeconfig.save(&self.files.kubeconfig)?;
        // Last: after a crash before it, the next start replaces both. A hash without its token would be an error.
        if self.shard_admin_token.is_some() {
            fairlead_certs::write_secret(&self.files.token_hash, self.shard_admin_hash)?;
        }
        Ok(())
    }

    /// The token of shard-admin in the kubeconfig of an earlier start.
    fn kept_token(&self) -> Result<String, AdministratorError> {
        let no_token = || AdministratorError::NoToken { token_hash: self.files.token_hash.to_path_buf() };
        let kubeconfig = match Kubeconfig::load(&self.files.kubeconfig) {
            Ok(kubeconfig) => kubeconfig,
            Err(KubeconfigError::Access { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(no_token());
            }
            Err(error) => return Err(error.into()),
        };
        let Ok(User { token: Some(KeyMaterial::Inline(token)), .. }) = kubeconfig.user(SHARD_ADMIN) else {
            return Err(no_token());
        };
        let token = String::from_utf8_lossy(&token).into_owned();
        if hash(&token) != self.shard_admin_hash {
            return Err(AdministratorError::OtherToken {
                kubeconfig: self.files.kubeconfig.to_path_buf(),
                token_hash: self.files.token_hash.to_path_buf(),
            });
        }
        Ok(token)
    }
}

fn stored_hash(file: &Path) -> Result<Option<TokenHash>, AdministratorError> {
    match std::fs::read(file) {
        Ok(bytes) => {
            let hash = TokenHash::try_from(bytes);
            hash.map(Some).map_err(|_| AdministratorError::Malformed(file.to_owned()))
        }
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AdministratorError::Access { file: file.to_owned(), source }),
    }
}

fn new_token() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn hash(token: &str) -> TokenHash {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("apiserver.crt"), "certificate").unwrap();
            Self(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Starts once. Returns the kubeconfig.
        fn start(&self, batteries: &[Battery]) -> Result<Kubeconfig, AdministratorError> {
            let config = ShardConfig {
                admin_access: Some(AdminAccessConfig {
                    kubeconfig: self.path("admin.kubeconfig").into(),
                    token_hash: self.path(".admin-token-store").into(),
                }),
                batteries: batteries.into(),
                ..ShardConfig::default()
            };
            let administrators = Administrators::create(&config)?.unwrap();
            administrators.write_files("https://127.0.0.1:6443", &self.path("apiserver.crt"))?;
            let kubeconfig = Kubeconfig::load(&self.path("admin.kubeconfig"))?;
            let hashes: Vec<_> =
                administrators.users().into_iter().map(|(hash, user)| (user.name, hash)).collect();
            for (name, expected) in hashes {
                assert_eq!(hash(&token(&kubeconfig, &name)), expected, "{name}");
            }
            Ok(kubeconfig)
        }
    }

    fn token(kubeconfig: &Kubeconfig, user: &str) -> String {
        match kubeconfig.user(user).unwrap().token {
            Some(KeyMaterial::Inline(token)) => String::from_utf8(token).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_kubeconfig_has_the_contexts_of_kcp() {
        let files = Files::new();
        let kubeconfig = files.start(&[Battery::Admin]).unwrap();
        let contexts: Vec<_> = kubeconfig.context_names().collect();
        assert_eq!(contexts, ["root", "base", "system:admin", "shard-base"]);
        assert_eq!(kubeconfig.current_context(), Some("root"));
        for (name, server, user) in [
            ("root", "https://127.0.0.1:6443/clusters/root", "kcp-admin"),
            ("base", "https://127.0.0.1:6443", "kcp-admin"),
            ("system:admin", "https://127.0.0.1:6443/clusters/system:admin", "shard-admin"),
            ("shard-base", "https://127.0.0.1:6443", "shard-admin"),
        ] {
            let context = kubeconfig.context(name).unwrap();
            let cluster = kubeconfig.cluster(&context.cluster).unwrap();
            assert_eq!((&*cluster.server, &*context.user), (server, user), "{name}");
            assert_eq!(cluster.certificate_authority, Some(KeyMaterial::Inline(b"certificate".to_vec())));
        }
        for name in ["admin.kubeconfig", ".admin-token-store"] {
            let mode = std::fs::metadata(files.path(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let with_user = files.start(&[Battery::Admin, Battery::User]).unwrap();
        assert_eq!(with_user.context("user").unwrap().user, "user");
    }

    #[test]
    fn a_restart_keeps_the_token_of_shard_admin_only() {
        let files = Files::new();
        let tokens = || {
            let kubeconfig = files.start(&[Battery::Admin]).unwrap();
            (token(&kubeconfig, SHARD_ADMIN), token(&kubeconfig, KCP_ADMIN))
        };
        let (first, second) = (tokens(), tokens());
        assert_eq!(first.0, second.0);
        assert_ne!(first.1, second.1);
    }

    #[test]
    fn a_kubeconfig_without_the_token_of_the_hash_is_an_error() {
        let files = Files::new();
        files.start(&[Battery::Admin]).unwrap();
        let hash_file = files.path(".admin-token-store");
        std::fs::write(&hash_file, hash("another")).unwrap();
        let expected = format!(
            "admin token in file \"{}\" is not valid anymore. Remove file \"{}\" and restart kcp",
            files.path("admin.kubeconfig").display(),
            hash_file.display()
        );
        assert_eq!(files.start(&[Battery::Admin]).err().unwrap().to_string(), expected);
        std::fs::remove_file(files.path("admin.kubeconfig")).unwrap();
        assert!(matches!(files.start(&[Battery::Admin]), Err(AdministratorError::NoToken { .. })));
        std::fs::write(&hash_file, "short").unwrap();
        assert!(matches!(files.start(&[Battery::Admin]), Err(AdministratorError::Malformed(_))));
        std::fs::remove_file(&hash_file).unwrap();
        assert!(files.start(&[Battery::Admin]).is_ok());
    }
}
