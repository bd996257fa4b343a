//! Who is this? Client certificates, request headers, static tokens, service accounts, OIDC, webhook, chains of them.
