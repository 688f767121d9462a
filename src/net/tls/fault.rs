//! The meaning of a TLS error for a link, in words that an operator can act on.
//!
//! Invariant: names in certificates come from the peer, so they are escaped and truncated before
//! they are shown.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError};

use crate::proto::Cause;

/// The reason why TLS ended a connection.
#[derive(Debug)]
pub(crate) struct TlsFault {
    cause: Cause,
    words: Option<String>,
}

impl TlsFault {
    pub(super) fn of(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => {
                Self::new(Cause::Certificate, certificate(error))
            }
            rustls::Error::AlertReceived(alert) => Self::new(Cause::TlsRefused, refusal(*alert)),
            rustls::Error::PeerIncompatible(_) => Self::new(Cause::TlsRefused, error.to_string()),
            error => Self::new(Cause::Tls, error.to_string()),
        }
    }

    /// Returns the fault of a server that answered the handshake with something other than TLS.
    pub(super) fn plain() -> Self {
        Self { cause: Cause::PlainPort, words: None }
    }

    /// Returns the fault of a connection that ended during the handshake.
    pub(super) fn cut() -> Self {
        Self::new(Cause::ConnectionClosed, "in the handshake of TLS".to_owned())
    }

    /// Returns the fault of a connection that ended without a closing alert.
    pub(super) fn truncated() -> Self {
        let words = "without TLS saying so: it was killed, or somebody cut the connection";
        Self::new(Cause::ConnectionClosed, words.to_owned())
    }

    fn new(cause: Cause, words: String) -> Self {
        Self { cause, words: Some(words) }
    }

    pub(crate) fn cause(&self) -> (Cause, Option<String>) {
        (self.cause, self.words.clone())
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Some(words) => write!(f, "{} ({words})", self.cause),
            None => self.cause.fmt(f),
        }
    }
}

impl Error for TlsFault {}

impl From<TlsFault> for io::Error {
    fn from(fault: TlsFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired => "it has expired".to_owned(),
        E::ExpiredContext { time, not_after } => {
            format!("it expired {} ago", span(*not_after, *time))
        }
        E::NotValidYet => NOT_YET.to_owned(),
        E::NotValidYetContext { time, not_before } => {
            format!("{NOT_YET}, but in {}", span(*time, *not_before))
        }
        E::NotValidForName => "it is for another name".to_owned(),
        E::NotValidForNameContext { expected, presented } => {
            format!("it is for {}, not for {}", names(presented), expected.to_str())
        }
        E::UnknownIssuer => "its issuer is not trusted: name the file with its CA".to_owned(),
        E::BadSignature => {
            "it is not signed by its issuer: is that another CA of the same name?".to_owned()
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => "it is not for servers".to_owned(),
        // rustls does not have a variant for this error of webpki.
        E::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "it is a CA's own: make one for the server and let the CA sign it".to_owned()
        }
        other => other.to_string(),
    }
}

/// Explains the alert with which the server ended the handshake.
fn refusal(alert: Alert) -> String {
    match alert {
        Alert::CertificateRequired => "it wants a client certificate".to_owned(),
        Alert::HandshakeFailure => {
            "handshake failure: it wants a client certificate, or there is no cipher in common"
                .to_owned()
        }
        Alert::UnknownCA => "it does not trust the issuer of our client certificate".to_owned(),
        Alert::CertificateExpired => "our client certificate has expired".to_owned(),
        Alert::CertificateRevoked => "our client certificate is revoked".to_owned(),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied => {
            format!("it does not accept our client certificate: {alert:?}")
        }
        Alert::UnrecognisedName => "it has no certificate for that server name".to_owned(),
        Alert::ProtocolVersion => "no version of TLS in common: 1.2 or 1.3 is needed".to_owned(),
        alert => format!("alert {alert:?}"),
    }
}

/// Lists the first names of a certificate.
fn names(presented: &[String]) -> String {
    let shown: Vec<_> = presented.iter().take(MOST_NAMES).map(|name| plain_name(name)).collect();
    let more = presented.len() - shown.len();
    match (shown.as_slice(), more) {
        ([], _) => "no name".to_owned(),
        (shown, 0) => shown.join(", "),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the name in `DnsName("a.example")` or `IpAddress(10.0.0.1)`, escaped and truncated.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    let inner = inner.trim_matches('"');
    let cut = inner.char_indices().nth(LONGEST_NAME).map_or(inner.len(), |(at, _)| at);
    inner[..cut].escape_debug().to_string()
}

/// Formats a duration in minutes, hours or days.
fn span(from: UnixTime, to: UnixTime) -> String {
    let span = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()));
    let minutes = span.as_secs() / 60;
    match minutes {
        0..=120 => format!("{minutes} min"),
        121..=2_880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1_440),
    }
}

const NOT_YET: &str = "it is not valid yet";
const MOST_NAMES: usize = 4;
const LONGEST_NAME: usize = 80;

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    fn words(error: CertificateError) -> String {
        TlsFault::of(&rustls::Error::InvalidCertificate(error)).cause().1.unwrap()
    }

    #[test]
    fn a_wrong_name_is_told_with_the_right_ones() {
        let wrong = |presented: &[&str]| {
            words(CertificateError::NotValidForNameContext {
                expected: ServerName::try_from("c.example").unwrap(),
                presented: presented.iter().map(ToString::to_string).collect(),
            })
        };
        let told = wrong(&["DnsName(\"a.example\")", "IpAddress(10.0.0.1)"]);
        assert_eq!(told, "it is for a.example, 10.0.0.1, not for c.example");
        assert_eq!(wrong(&[]), "it is for no name, not for c.example");
        assert_eq!(wrong(&["a"; 6]), "it is for a, a, a, a and 2 more, not for c.example");
        let told = wrong(&[&format!("DnsName(\"\x1b[31m{}\")", "x".repeat(900))]);
        assert!(!told.contains(char::is_control) && told.len() < 200, "{told}");
    }

    #[test]
    fn times_are_told_in_a_unit_that_people_use() {
        let expired = |secs: u64| {
            let at = |secs: u64| UnixTime::since_unix_epoch(Duration::from_secs(secs));
            let (time, not_after) = (at(1_000_000 + secs), at(1_000_000));
            words(CertificateError::ExpiredContext { time, not_after })
        };
        assert_eq!(expired(59), "it expired 0 min ago");
        assert_eq!(expired(2 * 3_600), "it expired 120 min ago");
        assert_eq!(expired(47 * 3_600), "it expired 47 h ago");
        assert_eq!(expired(90 * 86_400), "it expired 90 days ago");
    }

    #[test]
    fn whose_move_it_is() {
        let cause = |error| TlsFault::of(&error).cause().0;
        let refused = rustls::Error::AlertReceived(Alert::CertificateRequired);
        assert_eq!(cause(refused), Cause::TlsRefused);
        assert_eq!(cause(rustls::Error::DecryptError), Cause::Tls);
        assert!(Cause::TlsRefused.is_configuration() && Cause::Certificate.is_configuration());
        assert!(Cause::PlainPort.is_configuration() && !Cause::Tls.is_configuration());
    }
}
