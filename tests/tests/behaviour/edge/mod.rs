//! The listener for tokens, the development issuer, and `fairlead login`.

mod issuer;
mod login;
mod rights;
mod user;
mod work;

pub use user::User;

use std::path::{Path, PathBuf};

use fairlead_client::{Client, Token};
use serde_json::Value;

use crate::installation::{Installation, client};

impl Installation {
    /// The URL of the listener for tokens.
    pub fn edge(&self) -> String {
        self.record()["edge"].as_str().unwrap().to_owned()
    }

    pub fn edge_kubeconfig(&self) -> PathBuf {
        self.directory().join("edge.kubeconfig")
    }

    /// A client of the listener for tokens with a token, at a path such as `/clusters/root`.
    pub fn bearer(&self, token: &str, prefix: &str) -> Client {
        let credentials = self.anonymous().with_token(Token::new(token)).unwrap();
        client(&format!("{}{prefix}", self.edge()), credentials)
    }

    /// The record of `fairlead up`.
    pub fn record(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.directory().join("state.json")).unwrap()).unwrap()
    }
}

/// The token in the output of `fairlead login`.
fn token(printed: &str) -> String {
    let credential: Value = serde_json::from_str(printed).unwrap();
    assert_eq!(credential["kind"], "ExecCredential", "{credential}");
    credential["status"]["token"].as_str().unwrap().to_owned()
}

/// The only file with tokens in a cache.
fn cached(cache: &Path) -> PathBuf {
    let files: Vec<_> = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// Makes the tokens in a cache expired.
fn age(cache: &Path) {
    let file = cached(cache);
    let mut content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    content["expires"] = 0.into();
    std::fs::write(&file, content.to_string()).unwrap();
}
