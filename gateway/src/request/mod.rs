//! What a request asks for, read once and purely: path, query and header sizes in, a typed target out.

mod class;
mod headers;
mod path;

pub use class::RequestClass;
pub use headers::{HeaderLimits, HeadersTooLarge, connection_nominations, is_hop_by_hop};
pub use path::{ClusterTarget, LocalEndpoint, PathError, Reference, RequestPath, ServiceTarget};
