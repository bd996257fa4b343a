//! The settings of the development issuer.

use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{ConnectionLimits, DrainConfig, LogConfig, ServingConfig};
use crate::units::Timespan;
use crate::values::{InputFile, OwnPath};

settings! {
    /// The development issuer: an OpenID provider without passwords, for this machine only.
    pub struct IssuerConfig {
        /// Address and serving certificate. The address is a loopback address, because any client can sign in as any user. The URL
        /// of the issuer is https:// and this address.
        serving ("serving"): ServingConfig = ServingConfig { address: ([127, 0, 0, 1], 6444).into(), ..ServingConfig::default() };
        /// YAML file with the users: names, and optional groups. It is reloaded when it changes.
        users ("users"): InputFile = "users.yaml".into();
        /// PEM file with the private key that signs tokens; created if it does not exist.
        signing_key ("signingKey"): OwnPath = "signing.key".into();
        /// Client ID, the audience of tokens.
        client_id ("clientID"): String = "fairlead".to_owned();
        /// Lifetime of an ID token.
        token_lifetime ("tokenLifetime"): Timespan = Timespan::from_secs(600);
        /// Time after a sign-in in which tokens can be refreshed.
        sign_in_lifetime ("signInLifetime"): Timespan = Timespan::from_secs(12 * 3600);
        /// Limits of the listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits { max_connections: 256, max_streams_per_connection: 32, ..ConnectionLimits::default() };
        /// Shutdown of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Format and level of logs.
        log ("log"): LogConfig = LogConfig::default();
    }
}

impl ProcessConfig for IssuerConfig {
    const KIND: ProcessKind = ProcessKind::Issuer;

    fn check(&self, checker: &mut Checker) {
        if !self.serving.address.ip().is_loopback() {
            let message = format!("{} is not a loopback address", self.serving.address.ip());
            let hint = "any client of the development issuer can sign in as any user: use 127.0.0.1 or [::1]";
            checker.fault("serving.address", &message, hint);
        }
        if self.client_id.is_empty() {
            checker.fault("clientID", "tokens have no audience", "the default is \"fairlead\"");
        }
        checker.at_least("tokenLifetime", self.token_lifetime, Timespan::from_secs(1));
        checker.at_least("signInLifetime", self.sign_in_lifetime, self.token_lifetime);
        checker.within("limits", |checker| self.limits.check(checker));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::path::Path;

    use super::*;
    use crate::load::parse;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        for (address, accepted) in [
            ("127.0.0.1:6444", true),
            ("127.8.8.8:1", true),
            ("[::1]:6444", true),
            ("0.0.0.0:6444", false),
            ("[::]:6444", false),
            ("10.0.0.1:6444", false),
            ("[::ffff:127.0.0.1]:6444", false),
        ] {
            let text = format!("serving: {{address: \"{address}\"}}\n");
            let (_, findings) = parse::<IssuerConfig>(&text, Path::new("issuer.yaml")).unwrap();
            assert_eq!(findings.is_empty(), accepted, "{address}: {findings:?}");
        }
    }
}
