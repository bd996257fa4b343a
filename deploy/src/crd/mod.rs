//! `fairlead crd snapshot`: converts CRDs to APIResourceSchemas, without a server, with the output of kcp's plugin.

mod definition;
mod documents;
mod json;
mod omitted;
mod schema;
mod snapshot;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::output;
use snapshot::Conversion;

/// Convert CRDs
#[derive(Debug, Args)]
pub(crate) struct CrdCommand {
    #[command(subcommand)]
    verb: CrdVerb,
}

#[derive(Debug, Subcommand)]
enum CrdVerb {
    /// Convert CRDs to APIResourceSchemas
    Snapshot(Snapshot),
}

/// Arguments of `crd snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # The APIResourceSchema of the CRD widgets.example.io is named today.widgets.example.io.
  fairlead crd snapshot -f crd.yaml --prefix today > schema.yaml

  # From a server
  kubectl get crd widgets.example.io -o yaml | fairlead crd snapshot -f - --prefix today")]
struct Snapshot {
    /// File with CRDs as YAML or JSON; `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// First part of the names of the APIResourceSchemas, before `<resource>.<group>`
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = SchemaFormat::Yaml)]
    output: SchemaFormat,
}

/// Format of the APIResourceSchemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SchemaFormat {
    Yaml,
    Json,
}

/// Input that cannot be converted. The user has to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CrdError {
    #[error("--filename is required")]
    NoFile,
    #[error("--prefix is required")]
    NoPrefix,
    #[error("error opening {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} has no CustomResourceDefinition", .0.display())]
    Empty(PathBuf),
    #[error("document {number} is not YAML: {reason}")]
    Yaml { number: usize, reason: String },
    #[error("document {number} is no CustomResourceDefinition of apiextensions.k8s.io/v1 but {found}")]
    Kind { number: usize, found: String },
    #[error("document {number}: {path}: {reason}")]
    Field { number: usize, path: String, reason: String },
    #[error("error converting CRD: {name:?} is no name of an APIResourceSchema")]
    Name { name: String },
    #[error(
        "error converting CRD: webhooks that refer to services are not supported, please use URL instead"
    )]
    WebhookService,
    #[error("error converting CRD: webhooks URL must be set")]
    WebhookWithoutUrl,
    #[error("error converting CRD to an APIResourceSchema: {0}")]
    Encode(String),
}

impl CrdError {
    /// The next step, where there is one.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoFile => Some("name a file with -f, or read standard input with -f -"),
            Self::NoPrefix => Some(
                "APIResourceSchemas cannot be changed: use another prefix for each version, such as a date",
            ),
            Self::Name { .. } => Some(
                "names and prefixes have lower case letters, digits, '-' and '.', and at most 253 characters",
            ),
            Self::WebhookService => Some("a schema can be bound where the service does not exist"),
            Self::Kind { .. } => Some("`kubectl get crd <name> -o yaml` prints a CRD in that version"),
            _ => None,
        }
    }
}

impl CrdCommand {
    /// Runs the command. Nothing is printed unless all documents can be converted.
    pub(crate) fn run(&self) -> Result<(), CrdError> {
        let CrdVerb::Snapshot(snapshot) = &self.verb;
        output::print(snapshot.converted(&mut io::stdin().lock())?);
        Ok(())
    }
}

impl Snapshot {
    fn converted(&self, standard_input: &mut dyn Read) -> Result<String, CrdError> {
        let path = self.filename.clone().ok_or(CrdError::NoFile)?;
        let prefix = self.prefix.as_deref().filter(|prefix| !prefix.is_empty()).ok_or(CrdError::NoPrefix)?;
        let mut input = String::new();
        let read = if path.as_os_str() == "-" {
            standard_input.read_to_string(&mut input)
        } else {
            std::fs::File::open(&path).and_then(|mut file| file.read_to_string(&mut input))
        };
        read.map_err(|source| CrdError::Open { path: path.clone(), source })?;
        let definitions = documents::definitions(&input)?;
        if definitions.is_empty() {
            return Err(CrdError::Empty(path));
        }
        let mut text = String::new();
        for definition in &definitions {
            let schema = Conversion { prefix, definition }.api_resource_schema()?;
            let encoded = match self.output {
                SchemaFormat::Yaml => {
                    let tree = serde_json::to_value(&schema);
                    tree.map(|tree| crate::yaml::to_yaml(&tree)).map_err(|error| error.to_string())
                }
                SchemaFormat::Json => json::to_json_line(&schema),
            };
            // The empty line and the separator after the last document are those of kcp's plugin.
            text.push_str(&encoded.map_err(CrdError::Encode)?);
            text.push_str("\n---\n");
        }
        Ok(text)
    }
}
