//! Changing and writing a kubeconfig.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Cluster, Context, KeyMaterial, Kubeconfig, KubeconfigError, User};

impl Kubeconfig {
    /// Makes a context current. It need not exist yet.
    pub fn set_current_context(&mut self, name: &str) {
        self.tree.insert("current-context".to_owned(), json!(name));
    }

    /// Adds a context, or changes these fields of an existing one.
    pub fn set_context(&mut self, name: &str, context: &Context) {
        let fields = self.entry_mut("contexts", "context", name);
        fields.insert("cluster".to_owned(), json!(context.cluster));
        fields.insert("user".to_owned(), json!(context.user));
        set_or_remove(fields, "namespace", context.namespace.as_ref().map(|namespace| json!(namespace)));
    }

    /// Adds a cluster, or changes these fields of an existing one.
    pub fn set_cluster(&mut self, name: &str, cluster: &Cluster) {
        let fields = self.entry_mut("clusters", "cluster", name);
        fields.insert("server".to_owned(), json!(cluster.server));
        set_or_remove(fields, "tls-server-name", cluster.tls_server_name.as_ref().map(|name| json!(name)));
        let skip = cluster.insecure_skip_tls_verify.then_some(json!(true));
        set_or_remove(fields, "insecure-skip-tls-verify", skip);
        set_material(fields, "certificate-authority", cluster.certificate_authority.as_ref());
    }

    /// Adds a user, or changes the certificate, key and token of an existing one.
    pub fn set_user(&mut self, name: &str, user: &User) {
        let fields = self.entry_mut("users", "user", name);
        set_material(fields, "client-certificate", user.client_certificate.as_ref());
        set_material(fields, "client-key", user.client_key.as_ref());
        let (token, file) = match &user.token {
            None => (None, None),
            Some(KeyMaterial::Inline(token)) => (Some(json!(String::from_utf8_lossy(token))), None),
            Some(KeyMaterial::File(path)) => (None, Some(json!(path))),
        };
        set_or_remove(fields, "token", token);
        set_or_remove(fields, "tokenFile", file);
    }

    /// Copies a cluster entry whole, unknown fields included, with another server URL.
    pub fn copy_cluster(&mut self, from: &str, to: &str, server: &str) -> Result<(), KubeconfigError> {
        let mut fields = self.entry("clusters", "cluster", from)?.fields.clone();
        fields.insert("server".to_owned(), json!(server));
        *self.entry_mut("clusters", "cluster", to) = fields;
        Ok(())
    }

    /// Copies a context entry whole, unknown fields included.
    pub fn copy_context(&mut self, from: &str, to: &str) -> Result<(), KubeconfigError> {
        let fields = self.entry("contexts", "context", from)?.fields.clone();
        *self.entry_mut("contexts", "context", to) = fields;
        Ok(())
    }

    /// Removes a context; clusters and users stay.
    pub fn remove_context(&mut self, name: &str) {
        if let Some(entries) = self.tree.get_mut("contexts").and_then(Value::as_array_mut) {
            entries.retain(|entry| entry.get("name").and_then(Value::as_str) != Some(name));
        }
    }

    /// The file as YAML.
    pub fn to_yaml(&self) -> Result<String, KubeconfigError> {
        serde_saphyr::to_string(&self.tree).map_err(|error| KubeconfigError::Write(error.to_string()))
    }

    /// Replaces the file atomically; it is readable by its owner only.
    pub fn save(&self, path: &Path) -> Result<(), KubeconfigError> {
        let yaml = self.to_yaml()?;
        let access = |source| KubeconfigError::Access { path: path.to_owned(), source };
        // A link is followed, not replaced.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = target.with_file_name(name);
        let write = || {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(yaml.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &target)
        };
        write().map_err(access)
    }

    /// The fields of an entry, made if absent or malformed.
    fn entry_mut(&mut self, list: &str, section: &str, name: &str) -> &mut Map<String, Value> {
        let entries = as_array(self.tree.entry(list.to_owned()).or_insert(Value::Null));
        let position =
            entries.iter().position(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
        let position = position.unwrap_or_else(|| {
            entries.push(json!({ "name": name }));
            entries.len() - 1
        });
        let entry = as_object(&mut entries[position]);
        as_object(entry.entry(section.to_owned()).or_insert(Value::Null))
    }
}

fn set_material(fields: &mut Map<String, Value>, field: &str, material: Option<&KeyMaterial>) {
    let (data, file) = match material {
        None => (None, None),
        Some(KeyMaterial::Inline(content)) => (Some(json!(STANDARD.encode(content))), None),
        Some(KeyMaterial::File(path)) => (None, Some(json!(path))),
    };
    set_or_remove(fields, &format!("{field}-data"), data);
    set_or_remove(fields, field, file);
}

fn set_or_remove(fields: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

fn as_array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("made an array above"),
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("made an object above"),
    }
}
