//! Starts the parts of a shard: fills the store, then starts what every replica runs and what the leader runs.

use std::sync::Arc;
use std::time::Duration;

use fairlead_api::ShardSpec;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::Client;
use fairlead_config::ShardConfig;
use fairlead_names::ClusterName;
use fairlead_process::{ReadyFlag, Shutdown, Tasks};
use fairlead_store::{CommitError, Election, Revision};
use serde_json::{Value, json};

use super::ShardError;
use super::assembly::ShardParts;
use super::clients::root_client;
use super::leadership::{LeaderParts, Leadership};
use crate::bootstrap::{self, BootstrapError};
use crate::exports::RootExports;
use crate::names::{SHARDS, WORKSPACE_TYPES, WORKSPACES};
use crate::replication::Replication;
use crate::writes::Writes;

/// The first pause between requests to root's shard while it does not respond.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between these requests.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How often a step of the bootstrap is repeated. Another replica can only be faster as often as the step has commits.
const ATTEMPTS: u32 = 32;

impl ShardParts {
    /// Fills the store and starts what every replica runs; then leads, or starts to campaign.
    pub(super) async fn start(
        mut self,
        config: ShardConfig,
        cache: Client,
        election: Option<Arc<dyn Election>>,
        tasks: Tasks,
        shutdown: Shutdown,
        bootstrapped: ReadyFlag,
    ) -> Result<(), ShardError> {
        self.repeat(async || bootstrap::system(&self.objects, &self.definitions).await).await?;
        self.follow_cache(cache.clone(), &tasks, &shutdown);
        let is_root = config.name.is_root();
        let (exports, schemas) =
            if is_root { self.local_exports().await? } else { self.remote_exports(&config).await? };
        self.set_identities(&exports)?;
        let fill_shard =
            async || bootstrap::shard(&self.objects, &self.definitions, &exports, &schemas).await;
        self.repeat(fill_shard).await?;
        if is_root {
            let external_url = config.effective_external_url();
            let settings = bootstrap::ShardSettings {
                shard: config.name.as_str(),
                external_url: external_url.as_str(),
                batteries: &config.batteries,
                home_creators: &config.home_workspaces.creator_groups,
            };
            let fill_root =
                async || bootstrap::root(&self.objects, &self.definitions, &exports, &settings).await;
            self.repeat(fill_root).await?;
        }
        self.load_paths()?;
        if let Some(new_mirrors) = self.new_mirrors.take() {
            let reading = self.copies.clone().run(cache.clone(), new_mirrors, shutdown.clone());
            tasks.spawn("copies of bound resources", reading);
        }
        let parts = Arc::new(self);
        let supervised = tasks.clone();
        let name = config.name.clone();
        let leadership = Leadership { parts: parts.clone(), config, cache, exports, tasks, shutdown };
        match election {
            Some(election) => {
                supervised.spawn_fallible("leadership", leadership.run(election));
                if is_root {
                    parts.registration(name.as_str()).await;
                }
            }
            None => leadership.start_alone().await?,
        }
        // The indexes contain all of these writes before the first request is served.
        let _ = parts.hub.wait(parts.objects.store().revision()).await;
        bootstrapped.set();
        tracing::info!("ready");
        Ok(())
    }

    /// Repeats a step of the bootstrap when another replica has written the same objects meanwhile. Each step reads what
    /// exists and writes what is missing, so replicas that start together complete it together.
    async fn repeat<T>(
        &self,
        step: impl AsyncFn() -> Result<T, BootstrapError>,
    ) -> Result<T, BootstrapError> {
        let mut attempts = 0;
        loop {
            match step().await {
                Err(BootstrapError::Commit(CommitError::Conflict { .. })) if attempts < ATTEMPTS => {
                    attempts += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn follow_cache(&self, client: Client, tasks: &Tasks, shutdown: &Shutdown) {
        let (global, shutdown) = (self.global.clone(), shutdown.clone());
        tasks.spawn("replicas of other shards", async move { global.run(client, shutdown).await });
    }

    async fn local_exports(&self) -> Result<(RootExports, Vec<Value>), ShardError> {
        let fill = async || bootstrap::root_exports(&self.objects, &self.definitions).await;
        let exports = self.repeat(fill).await?;
        let schemas = bootstrap::root_schemas(&self.objects).map_err(BootstrapError::from)?;
        Ok((exports, schemas))
    }

    /// The exports that an earlier run stored. Without them, requests root's shard until it responds.
    async fn remote_exports(&self, config: &ShardConfig) -> Result<(RootExports, Vec<Value>), ShardError> {
        let stored_exports = bootstrap::stored_exports(&self.objects).map_err(BootstrapError::from)?;
        if let Some((exports, schemas)) = stored_exports.filter(|(exports, _)| exports.is_complete()) {
            return Ok((exports, schemas));
        }
        let client = root_client(config)?;
        let mut pause = FIRST_RETRY_PAUSE;
        loop {
            match fetch_root_exports(&client).await {
                Ok((exports, schemas)) if exports.is_complete() => return Ok((exports, schemas)),
                Ok(_) => tracing::debug!("root's exports are not complete yet"),
                Err(error) => tracing::debug!(%error, "root's shard does not respond yet"),
            }
            // There is no event for the start of root's shard.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
        }
    }

    /// Waits until the Shard of root is in its store, where whichever replica leads writes it: clients list the shards as soon as
    /// root is ready.
    async fn registration(&self, name: &str) {
        let root = Scope::new("root");
        loop {
            let seen = self.hub.revision();
            let found = self.definitions.exported(&SHARDS).and_then(|shards| {
                self.objects.get(&SHARDS, &shards.origin, &root, None, name).ok().flatten()
            });
            if found.is_some() || self.hub.wait(Revision(seen.0 + 1)).await.is_err() {
                return;
            }
        }
    }

    fn set_identities(&self, exports: &RootExports) -> Result<(), ShardError> {
        self.definitions.set_identities(&exports.identities())?;
        self.exports.set_root(exports.clone());
        if let Some(types) = self.definitions.exported(&WORKSPACE_TYPES) {
            self.types.set_origin(types.origin.clone());
        }
        Ok(())
    }

    fn load_paths(&self) -> Result<(), ShardError> {
        let Some(workspaces) = self.definitions.exported(&WORKSPACES) else { return Ok(()) };
        let all = ScopeSelector::all();
        let loaded = self.objects.for_each(&WORKSPACES, &workspaces.origin, &all, &mut |listed| {
            self.paths.load(listed.scope, listed.object.json());
        });
        loaded.map_err(BootstrapError::from)?;
        Ok(())
    }
}

impl LeaderParts {
    /// Starts what only the leader runs: replication, the registration of the shard, and the controllers.
    pub(super) async fn start(
        &self,
        config: &ShardConfig,
        cache: &Client,
        exports: &RootExports,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        self.replicate(config, cache.clone(), exports, tasks, shutdown);
        self.register(config, tasks, shutdown).await?;
        self.start_cached_resources(config, cache.clone(), tasks, shutdown);
        self.start_controllers(config, tasks, shutdown)
    }

    fn replicate(
        &self,
        config: &ShardConfig,
        client: Client,
        exports: &RootExports,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let (objects, hub) = (self.objects.clone(), self.hub.clone());
        let identities = exports.identities();
        let (shard, metrics) = (config.name.as_str(), &self.replication_metrics);
        let replication = Replication::new(shard, objects, hub, &identities, client, metrics);
        tasks.spawn("replication", replication.run(shutdown.clone()));
    }

    /// Registers this shard and its URLs as a Shard in root.
    async fn register(
        &self,
        config: &ShardConfig,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        let spec = ShardSpec {
            base_url: config.base_url().as_str().to_owned(),
            external_url: config.effective_external_url().as_str().to_owned(),
            virtual_workspace_url: config.effective_virtual_workspace_url().as_str().to_owned(),
        };
        let object = fairlead_api::shard_registration(config.name.as_str(), &spec);
        if config.name.is_root() {
            let mut writes = Writes::new(&self.objects, &self.definitions);
            writes.ensure("root", object).map_err(BootstrapError::from)?;
            writes.commit().await.map_err(BootstrapError::from)?;
            return Ok(());
        }
        let client = root_client(config)?;
        let shutdown = shutdown.clone();
        tasks.spawn("registration", async move {
            let mut pause = FIRST_RETRY_PAUSE;
            while let Err(error) = register_at(&client, &object).await {
                tracing::debug!(%error, "the shard is not registered yet");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shutdown.draining() => return,
                }
                pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
            }
        });
        Ok(())
    }
}

async fn fetch_root_exports(
    client: &Client,
) -> Result<(RootExports, Vec<Value>), fairlead_client::ClientError> {
    let root = ClusterName::root();
    let items = |list: Value| list["items"].as_array().cloned().unwrap_or_default();
    let exports = client.get_json(&format!("/clusters/{root}/apis/apis.kcp.io/v1alpha2/apiexports")).await?;
    let schemas =
        client.get_json(&format!("/clusters/{root}/apis/apis.kcp.io/v1alpha1/apiresourceschemas")).await?;
    let schemas = items(schemas);
    Ok((RootExports::read(&items(exports), &schemas), schemas))
}

async fn register_at(client: &Client, object: &Value) -> Result<(), fairlead_client::ClientError> {
    let path = "/clusters/root/apis/core.kcp.io/v1alpha1/shards";
    let options = fairlead_client::WriteOptions::default();
    let created: Result<Value, _> = client.create(path, object, &options).await;
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let patch = json!({"spec": object["spec"], "metadata": {"labels": object["metadata"]["labels"]}});
            let kind = fairlead_client::PatchType::Merge;
            let _: Value = client.patch(&format!("{path}/{name}"), kind, &patch, &options).await?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}
