//! The device grant: a program without a browser shows a code, which a user enters in a browser elsewhere (RFC 8628).

use std::time::Duration;

use crate::clock::Time;
use crate::expiring_map::ExpiringMap;
use crate::oauth_error::OAuthError;
use crate::secret::{secret, user_code};
use crate::tokens::{Scope, SignIn};

/// Lifetime of a device code.
pub(crate) const DEVICE_CODE_LIFETIME: Duration = Duration::from_secs(600);
/// Minimum interval between two polls.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pending devices.
const MAX_DEVICES: usize = 256;

/// Programs that wait for the decision of a user.
pub(crate) struct Devices {
    devices: ExpiringMap<Device>,
}

struct Device {
    user_code: UserCode,
    scope: Scope,
    expires: Time,
    polled: Option<Time>,
    decision: Option<Decision>,
}

/// The decision of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The program gets tokens of this user.
    SignIn {
        user: String,
        /// Time of the sign-in, in seconds since 1970.
        at: u64,
    },
    /// The program gets no tokens.
    Refuse,
}

/// A user code: eight letters. Case and separators are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserCode(String);

impl UserCode {
    /// Parses typed text. `None` if it is not a code.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_letter = |c: &char| !matches!(c, ' ' | '-' | '_' | '.');
        let code: String = text.chars().filter(is_letter).map(|c| c.to_ascii_uppercase()).take(9).collect();
        (code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(Self(code))
    }

    /// The display form: `BCDF-GHJK`.
    pub(crate) fn display(&self) -> String {
        let (first, second) = self.0.split_at(4);
        format!("{first}-{second}")
    }
}

impl Devices {
    pub(crate) fn new() -> Self {
        // Entries outlive their codes, so that a late poll gets `expired_token`.
        Self { devices: ExpiringMap::new(DEVICE_CODE_LIFETIME * 2, MAX_DEVICES) }
    }

    /// Starts a device grant. Returns the device code and the user code.
    pub(crate) fn begin(&mut self, now: Time, scope: Scope) -> Result<(String, UserCode), OAuthError> {
        let (device_code, user_code) = (secret()?, UserCode(user_code()?));
        let device = Device {
            user_code: user_code.clone(),
            scope,
            expires: now.after(DEVICE_CODE_LIFETIME),
            polled: None,
            decision: None,
        };
        self.devices.insert(now, device_code.clone(), device);
        Ok((device_code, user_code))
    }

    /// Whether a device with this code waits for a decision.
    pub(crate) fn is_pending(&mut self, now: Time, code: &UserCode) -> bool {
        self.pending(now, code).is_some()
    }

    /// Sets the decision, once. Returns whether a device with this code was waiting for it.
    pub(crate) fn decide(&mut self, now: Time, code: &UserCode, decision: Decision) -> bool {
        let device = self.pending(now, code);
        device.map(|device| device.decision = Some(decision)).is_some()
    }

    fn pending(&mut self, now: Time, code: &UserCode) -> Option<&mut Device> {
        let waits_for_decision = |device: &Device| {
            device.user_code == *code && device.decision.is_none() && now.instant < device.expires.instant
        };
        self.devices.find_mut(now, waits_for_decision)
    }

    /// Handles a poll of the program. A decision is returned once.
    pub(crate) fn poll(&mut self, now: Time, device_code: &str) -> Result<SignIn, OAuthError> {
        let device = self.devices.get_mut(now, device_code);
        let device = device.ok_or(OAuthError::InvalidGrant("the device code is unknown, used or expired"))?;
        let Some(decision) = device.decision.clone() else {
            if now.instant >= device.expires.instant {
                return Err(OAuthError::ExpiredToken);
            }
            let last = device.polled.replace(now);
            let waited = last.map(|last| now.instant.saturating_duration_since(last.instant));
            let too_soon = waited.is_some_and(|waited| waited < POLL_INTERVAL);
            return Err(if too_soon { OAuthError::SlowDown } else { OAuthError::AuthorizationPending });
        };
        let scope = device.scope;
        self.devices.take(now, device_code);
        match decision {
            Decision::SignIn { user, at } => Ok(SignIn { user, at, nonce: None, scope }),
            Decision::Refuse => Err(OAuthError::AccessDenied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_codes_are_accepted_in_any_case_and_with_separators() {
        for text in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b-c-d-f-g-h-j-k"] {
            assert_eq!(
                UserCode::parse(text).map(|code| code.display()).as_deref(),
                Some("BCDF-GHJK"),
                "{text}"
            );
        }
        for text in ["", "BCDF", "BCDF-GHJK-L", "BCDF-GHJ1", "ÄBCDFGH", "<script>"] {
            assert_eq!(UserCode::parse(text), None, "{text}");
        }
    }
}
