//! A lean Kubernetes client on hyper: kubeconfig, requests, a reflector that decodes only what its user names.
