//! The device grant: a program without a browser shows a code, a person types it elsewhere (RFC 8628).

use std::time::Duration;

use crate::expiring::Expiring;
use crate::moment::Moment;
use crate::refusal::Refusal;
use crate::secret::{secret, user_code};
use crate::tokens::{Scope, SignIn};

/// How long a person has to decide.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// How long a program waits between two questions.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Programs that wait at the same time.
const MOST: usize = 256;

/// Programs that wait for somebody's decision.
pub(crate) struct Devices {
    waiting: Expiring<Device>,
}

struct Device {
    user_code: UserCode,
    scope: Scope,
    ends: Moment,
    asked: Option<Moment>,
    decision: Option<Decision>,
}

/// What a person has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The program may act as this user.
    SignIn {
        user: String,
        /// In seconds since 1970.
        at: u64,
    },
    /// It may not.
    Refuse,
}

/// A code that people type: eight letters, however they are typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserCode(String);

impl UserCode {
    /// Reads what somebody has typed. `None` if it cannot be a code.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let blank = |c: &char| !matches!(c, ' ' | '-' | '_' | '.');
        let code: String = text.chars().filter(blank).map(|c| c.to_ascii_uppercase()).take(9).collect();
        (code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(Self(code))
    }

    /// As it is shown: `BCDF-GHJK`.
    pub(crate) fn shown(&self) -> String {
        let (first, second) = self.0.split_at(4);
        format!("{first}-{second}")
    }
}

impl Devices {
    pub(crate) fn new() -> Self {
        // They are remembered beyond their end, so that a program that asks then can be told that it is too late.
        Self { waiting: Expiring::new(PATIENCE * 2, MOST) }
    }

    /// Begins; returns the program's code and the person's.
    pub(crate) fn begin(&mut self, now: Moment, scope: Scope) -> Result<(String, UserCode), Refusal> {
        let (device_code, user_code) = (secret()?, UserCode(user_code()?));
        let device = Device {
            user_code: user_code.clone(),
            scope,
            ends: now.after(PATIENCE),
            asked: None,
            decision: None,
        };
        self.waiting.insert(now, device_code.clone(), device);
        Ok((device_code, user_code))
    }

    /// Whether a program waits under this code.
    pub(crate) fn waits(&mut self, now: Moment, code: &UserCode) -> bool {
        self.undecided(now, code).is_some()
    }

    /// Decides, once. False if nothing waits under this code (any more).
    pub(crate) fn decide(&mut self, now: Moment, code: &UserCode, decision: Decision) -> bool {
        let device = self.undecided(now, code);
        device.map(|device| device.decision = Some(decision)).is_some()
    }

    fn undecided(&mut self, now: Moment, code: &UserCode) -> Option<&mut Device> {
        let is_it = |device: &Device| {
            device.user_code == *code && device.decision.is_none() && now.instant < device.ends.instant
        };
        self.waiting.find_mut(now, is_it)
    }

    /// A program asks for the decision, which it gets once.
    pub(crate) fn ask(&mut self, now: Moment, device_code: &str) -> Result<SignIn, Refusal> {
        let device = self.waiting.get_mut(now, device_code);
        let device = device.ok_or(Refusal::InvalidGrant("the device code is unknown, used or long over"))?;
        let Some(decision) = device.decision.clone() else {
            if now.instant >= device.ends.instant {
                return Err(Refusal::ExpiredToken);
            }
            let last = device.asked.replace(now);
            let waited = last.map(|last| now.instant.saturating_duration_since(last.instant));
            let too_soon = waited.is_some_and(|waited| waited < INTERVAL);
            return Err(if too_soon { Refusal::SlowDown } else { Refusal::AuthorizationPending });
        };
        let scope = device.scope;
        self.waiting.take(now, device_code);
        match decision {
            Decision::SignIn { user, at } => Ok(SignIn { user, at, nonce: None, scope }),
            Decision::Refuse => Err(Refusal::AccessDenied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_type_codes_as_they_like() {
        for text in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b-c-d-f-g-h-j-k"] {
            assert_eq!(
                UserCode::parse(text).map(|code| code.shown()).as_deref(),
                Some("BCDF-GHJK"),
                "{text}"
            );
        }
        for text in ["", "BCDF", "BCDF-GHJK-L", "BCDF-GHJ1", "ÄBCDFGH", "<script>"] {
            assert_eq!(UserCode::parse(text), None, "{text}");
        }
    }
}
