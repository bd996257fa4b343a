//! Certificates and kubeconfigs: plan, issue, rotate, write.
