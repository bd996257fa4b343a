//! One certificate order, from its creation to the PEM text of the file.

use std::time::Duration;

use std::collections::BTreeSet;

use fairlead_certs::CertificateRequest;
use fairlead_config::AcmeChallenge;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::listener::acme::AcmeError;
use crate::listener::acme::challenge_responses::{ChallengeResponse, ChallengeResponses};
use crate::listener::acme::state::StoredCertificate;

/// The certificate that a listener needs.
#[derive(Clone, Debug)]
pub(super) struct OrderRequest {
    pub(super) listener: String,
    pub(super) names: BTreeSet<String>,
    pub(super) challenge: AcmeChallenge,
}

/// Intervals and time limit of polling the state of an order.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Orders a certificate. Returns key, certificate and intermediates as one PEM text, checked to match.
pub(super) async fn order(
    account: &Account,
    wanted: &OrderRequest,
    replaces: Option<CertificateIdentifier<'_>>,
    challenge_responses: &ChallengeResponses,
) -> Result<String, AcmeError> {
    let identifier = |name: &String| match name.parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.clone()),
    };
    let identifiers: Vec<_> = wanted.names.iter().map(identifier).collect();
    let mut new = NewOrder::new(&identifiers);
    if let Some(replaced) = replaces {
        new = new.replaces(replaced);
    }
    let mut order = account.new_order(&new).await?;
    // Kept until the authority has validated the challenges.
    let _responses = respond(&mut order, wanted, challenge_responses).await?;
    if order.poll_ready(&POLL_POLICY).await? != OrderStatus::Ready {
        return Err(reason(&mut order).await);
    }
    let names: Vec<String> = wanted.names.iter().cloned().collect();
    let request = CertificateRequest::new(&names)?;
    order.finalize_csr(&request.request).await?;
    let chain = order.poll_certificate(&POLL_POLICY).await?;
    is_usable(&request.key, &chain, wanted)?;
    Ok(format!("{}{chain}", request.key))
}

/// Responds to all challenges of an order.
async fn respond(
    order: &mut Order,
    wanted: &OrderRequest,
    challenge_responses: &ChallengeResponses,
) -> Result<Vec<Option<ChallengeResponse>>, AcmeError> {
    let (challenge_type, mut responses) = (wanted.challenge, Vec::new());
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        // Validated recently, and still valid.
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        // The name becomes part of a file name, and only configured names may be validated.
        if !wanted.names.contains(&name.to_ascii_lowercase()) {
            return Err(AcmeError::Unusable(format!("a challenge for {name:?}, which was not ordered")));
        }
        let kind = match challenge_type {
            AcmeChallenge::Http01 => ChallengeType::Http01,
            AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let Some(mut challenge) = authorization.challenge(kind) else {
            return Err(AcmeError::NoSuchChallenge(challenge_type.name(), name));
        };
        let proof = challenge.key_authorization();
        responses.push(match challenge_type {
            AcmeChallenge::Http01 => challenge_responses.put_token(&challenge.token, proof.as_str())?,
            AcmeChallenge::TlsAlpn01 => {
                Some(challenge_responses.put_certificate(&name, proof.digest().as_ref())?)
            }
        });
        challenge.set_ready().await?;
    }
    Ok(responses)
}

/// The authority's reason for a failed order.
async fn reason(order: &mut Order) -> AcmeError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if state.status == AuthorizationStatus::Valid {
            continue;
        }
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        let reason = problem.map_or_else(|| "the authority gives no reason".to_owned(), ToString::to_string);
        return AcmeError::Refused { name: state.identifier().to_string(), reason };
    }
    AcmeError::Unusable("the order failed without a reason".to_owned())
}

/// Checks the new certificate, because it replaces the last valid one.
fn is_usable(key: &str, chain: &str, wanted: &OrderRequest) -> Result<(), AcmeError> {
    let unusable = |reason: String| AcmeError::Unusable(reason);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    let leaf = chain.first().cloned().and_then(|leaf| StoredCertificate::of(leaf.into_owned()));
    let Some(leaf) = leaf else { return Err(unusable("it contains no certificate".to_owned())) };
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(error.to_string()))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|error| unusable(error.to_string()))?;
    if leaf.names != wanted.names {
        return Err(unusable(format!("it is for {:?}", leaf.names)));
    }
    if leaf.not_after <= std::time::SystemTime::now() {
        return Err(unusable("it has expired".to_owned()));
    }
    Ok(())
}
