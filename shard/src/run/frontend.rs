//! What answers on the shard's port: health endpoints, and the API.

use std::sync::Arc;

use fairlead_apiserver::{ApiServer, ResponseBody};
use fairlead_process::{Health, Service};
use http::{Request, Response};
use hyper::body::Incoming;

use crate::host::ShardHost;

/// The service of the shard's listener.
pub(super) struct Frontend {
    api: Arc<ApiServer<ShardHost>>,
    health: Health,
}

impl Frontend {
    pub(super) fn new(api: Arc<ApiServer<ShardHost>>, health: Health) -> Self {
        Self { api, health }
    }
}

impl Service for Frontend {
    type Body = ResponseBody;

    async fn call(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let uri = request.uri();
        // Health is allowed with the prefix of a workspace, too.
        let path =
            match uri.path().strip_prefix("/clusters/").and_then(|rest| rest.find('/').map(|at| &rest[at..]))
            {
                Some(rest) => rest,
                None => uri.path(),
            };
        match self.health.respond(path, uri.query()) {
            Some(response) => response.map(ResponseBody::full),
            None => self.api.handle(request).await,
        }
    }
}
