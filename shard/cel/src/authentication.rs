//! The variables of structured authentication configuration (KEP-3331): claims of a token, and the user made of them.

use std::sync::Arc;

use crate::admission::user_info;
use crate::check::Variable;
use crate::environment::Environment;
use crate::types::DeclType;

impl Environment {
    /// Declares `claims`: the claims of a token, of any types.
    #[must_use]
    pub fn with_claims_variable(self) -> Self {
        self.with_variable("claims", Variable::Json(Arc::new(DeclType::map(DeclType::any(), None))))
    }

    /// Declares `user`: `username`, `uid`, `groups` and `extra`.
    #[must_use]
    pub fn with_user_variable(self) -> Self {
        self.with_variable("user", Variable::Json(Arc::new(user_info())))
    }
}

#[cfg(test)]
mod tests {
    use crate::Environment;

    #[test]
    fn selected_fields_are_those_of_the_variable_itself() {
        let environment = Environment::default().with_claims_variable();
        for (source, expected) in [
            ("claims.email", &["email"][..]),
            ("claims.?email.orValue('')", &["email"]),
            ("has(claims.email_verified) ? claims.email : claims.sub", &["email", "email_verified", "sub"]),
            ("claims.groups.filter(email, email == claims.sub)", &["groups", "sub"]),
            ("[{'email': 1}].exists(claims, claims.email == 1)", &[]),
            ("claims['email'] == 'x'", &[]),
        ] {
            let fields = environment.selected_fields(source, "claims").unwrap();
            assert_eq!(fields.iter().map(|field| &**field).collect::<Vec<_>>(), expected, "{source}");
        }
    }
}
