//! The certificates that are trusted over TLS, and the client's own certificate.
//!
//! Files are read when a configuration is built, to report errors at once, and again before each
//! connection, because certificates are replaced while programs run. Reading can hang with the file
//! system, so the event loop never reads files.
//!
//! Invariant: a session is resumed only with unchanged file contents, so that a CA which was
//! removed is not trusted further, and only with the same address, because nodes with one name
//! cannot read each other's tickets. The system's roots are read once. `Debug` shows paths only.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, InconsistentKeys, RootCertStore,
    SignatureScheme,
};

use super::session::Session;
use crate::net::address::Address;
use crate::net::threads::lock;

/// The TLS options for all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// The CA certificates (PEM) that are trusted instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate and those of its issuers, in PEM.
    pub(crate) certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    pub(crate) key: Option<PathBuf>,
    /// The name that servers must prove, instead of the host in their address.
    pub(crate) server_name: Option<String>,
    /// Any server certificate is accepted.
    pub(crate) accept_any: bool,
}

/// The TLS options for sentinels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentinelTls {
    /// Overrides the TLS use of the sentinel address; `None` follows it.
    pub(crate) is_on: Option<bool>,
    /// The options for sentinels; those not set default to the options for nodes. A certificate and
    /// its key default together.
    pub(crate) own: TlsSettings,
}

/// An error in the TLS options or their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    words: String,
}

impl TlsError {
    fn new(words: impl Into<String>) -> Self {
        Self { words: words.into() }
    }

    fn of(path: &Path, what: impl fmt::Display) -> Self {
        Self::new(format!("{}: {what}", path.display()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.words)
    }
}

impl Error for TlsError {}

/// A factory of TLS sessions. Clones are cheap and share the contents last read.
#[derive(Clone)]
pub(crate) struct Connector {
    settings: Arc<TlsSettings>,
    current: Arc<Mutex<Arc<Current>>>,
}

/// The file contents last read, and what was built from them.
struct Current {
    files: Files,
    roots: Arc<RootCertStore>,
    config: ClientConfig,
    /// Copies of `config` by address, each with its own session cache.
    places: Mutex<HashMap<Address, Arc<ClientConfig>>>,
}

#[derive(PartialEq, Eq)]
struct Files {
    ca: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Connector {
    /// Creates connectors for nodes and sentinels, as far as these addresses need TLS. Reads all
    /// files.
    pub(crate) fn for_all(
        nodes: TlsSettings,
        sentinels: SentinelTls,
        addresses: &[Address],
    ) -> Result<(Option<Self>, Option<Self>), TlsError> {
        let places = places_over_tls(&sentinels, addresses)?;
        if sentinels.is_on == Some(false) && !nodes.names_its_servers() {
            // An attacker posing as a sentinel could name a host with any public certificate, which
            // would receive the password.
            let is_named_by_them = |it: &Address| matches!(it, Address::Sentinels(it) if it.tls);
            if addresses.iter().any(is_named_by_them) {
                return Err(TlsError::new(ANY_MASTER));
            }
        }
        let no_nodes = !addresses.iter().any(Address::is_tls);
        let theirs = sentinels.own.clone().or(&nodes);
        let nothing = TlsSettings::default();
        let is_for_sentinels = !places.is_empty() && theirs != sentinels.own.or(&nothing);
        // TLS options without any TLS connection are a mistake of the operator.
        if no_nodes && !is_for_sentinels && nodes != nothing {
            return Err(TlsError::new(NO_ADDRESS));
        }
        let is_shared = theirs == nodes;
        let for_nodes = if no_nodes { None } else { Some(Self::for_nodes(nodes, addresses)?) };
        let for_sentinels = match &for_nodes {
            _ if places.is_empty() => None,
            Some(connector) if is_shared => Some(connector.clone()),
            _ => Some(Self::new(theirs)?),
        };
        if let Some(connector) = &for_sentinels {
            places.iter().try_for_each(|place| connector.settings.name_of(place).map(drop))?;
        }
        Ok((for_nodes, for_sentinels))
    }

    fn for_nodes(settings: TlsSettings, addresses: &[Address]) -> Result<Self, TlsError> {
        // The masters that sentinels will name are not known yet.
        let is_known = |address: &&Address| {
            settings.server_name.is_some() || !matches!(address, Address::Sentinels(_))
        };
        let with_tls = addresses.iter().filter(|address| address.is_tls()).filter(is_known);
        with_tls.into_iter().try_for_each(|address| settings.name_of(address).map(drop))?;
        Self::new(settings)
    }

    fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        if settings.accept_any && settings.ca.is_some() {
            return Err(TlsError::new("a CA file is of no use where any certificate is accepted"));
        }
        let files = Files::read(&settings)?;
        let roots = match &settings.ca {
            None if !settings.accept_any => Arc::new(system_roots()?),
            _ => Arc::new(RootCertStore::empty()),
        };
        let current = Arc::new(Current::new(&settings, files, roots)?);
        Ok(Self { settings: Arc::new(settings), current: Arc::new(Mutex::new(current)) })
    }

    /// Begins a session using the current files. Blocks while they are read.
    pub(crate) fn session(&self, address: &Address) -> Result<Session, TlsError> {
        self.read()?.session(address)
    }

    /// Returns whether there are files to read, which can block indefinitely.
    pub(crate) fn has_files(&self) -> bool {
        let TlsSettings { ca, certificate, key, .. } = &*self.settings;
        ca.is_some() || certificate.is_some() || key.is_some()
    }

    /// Reads the files. Blocks meanwhile.
    pub(crate) fn read(&self) -> Result<Certificates, TlsError> {
        let files = Files::read(&self.settings)?;
        let mut current = lock(&self.current);
        if files != current.files {
            // New contents start with empty caches: sessions from an old CA must not resume.
            let roots = Arc::clone(&current.roots);
            *current = Arc::new(Current::new(&self.settings, files, roots)?);
        }
        Ok(Certificates { settings: Arc::clone(&self.settings), current: Arc::clone(&current) })
    }
}

/// The file contents, as read at one time.
#[derive(Clone)]
pub(crate) struct Certificates {
    settings: Arc<TlsSettings>,
    current: Arc<Current>,
}

impl Certificates {
    /// Begins a session without reading files.
    pub(crate) fn session(&self, address: &Address) -> Result<Session, TlsError> {
        let name = self.settings.name_of(address)?;
        let session = Session::new(self.current.of(address), name);
        session.map_err(|error| TlsError::new(error.to_string()))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

fn places_over_tls(
    sentinels: &SentinelTls,
    addresses: &[Address],
) -> Result<Vec<Address>, TlsError> {
    let all = addresses.iter().filter_map(|address| match address {
        Address::Sentinels(sentinels) => Some(sentinels),
        _ => None,
    });
    if all.clone().next().is_none() && sentinels.is_on.is_some() {
        return Err(TlsError::new(NO_SENTINELS));
    }
    let with_tls = all.filter(|known| sentinels.is_on.unwrap_or(known.tls));
    let places: Vec<_> = with_tls
        .flat_map(|known| known.places.iter().map(|place| Address::of(place, true)))
        .collect();
    if places.is_empty() && sentinels.own != TlsSettings::default() {
        return Err(TlsError::new(NO_SENTINELS));
    }
    Ok(places)
}

impl TlsSettings {
    /// Returns whether a public certificate alone is not enough, or any certificate will do by
    /// choice.
    fn names_its_servers(&self) -> bool {
        self.ca.is_some() || self.server_name.is_some() || self.accept_any
    }

    /// Fills the options that are not set from `others`.
    fn or(self, others: &Self) -> Self {
        let (certificate, key) = match (self.certificate, self.key) {
            (None, None) => (others.certificate.clone(), others.key.clone()),
            own => own,
        };
        Self {
            // A CA file for sentinels takes precedence over accepting any certificate.
            accept_any: others.accept_any && self.ca.is_none(),
            ca: self.ca.or_else(|| others.ca.clone()),
            certificate,
            key,
            server_name: self.server_name.or_else(|| others.server_name.clone()),
        }
    }

    /// Returns the name that the server at this address must prove.
    fn name_of(&self, address: &Address) -> Result<ServerName<'static>, TlsError> {
        let host = match (&self.server_name, address) {
            (Some(name), _) => name,
            (None, Address::TlsName(host, _) | Address::Name(host, _)) => host,
            (None, Address::TlsIp(ip, _) | Address::Ip(ip, _)) => return Ok((*ip).into()),
            (None, Address::Unix(_) | Address::Sentinels(_)) => {
                return Err(TlsError::new(NO_ADDRESS));
            }
        };
        ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::new(format!("`{}` is no server name", host.escape_debug())))
    }
}

impl Files {
    fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        let read = |path: &Option<PathBuf>| {
            let read = |path: &Path| fs::read(path).map_err(|error| TlsError::of(path, error));
            path.as_deref().map(read).transpose()
        };
        Ok(Self {
            ca: read(&settings.ca)?,
            certificate: read(&settings.certificate)?,
            key: read(&settings.key)?,
        })
    }
}

impl Current {
    /// Builds the configuration; `system` applies unless a file names other roots.
    fn new(
        settings: &TlsSettings,
        files: Files,
        system: Arc<RootCertStore>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(error.to_string()))?;
        let builder = match (&settings.ca, &files.ca) {
            _ if settings.accept_any => {
                let any = AcceptAny(provider.signature_verification_algorithms);
                builder.dangerous().with_custom_certificate_verifier(Arc::new(any))
            }
            (Some(path), Some(pem)) => builder.with_root_certificates(roots_in(path, pem)?),
            _ => builder.with_root_certificates(Arc::clone(&system)),
        };
        let config = identified(builder, settings, &files)?;
        Ok(Self { files, roots: system, config, places: Mutex::default() })
    }

    /// Returns the configuration for this address, with its session cache.
    fn of(&self, address: &Address) -> Arc<ClientConfig> {
        let mut places = lock(&self.places);
        if let Some(config) = places.get(address) {
            return Arc::clone(config);
        }
        // The map is bounded because sentinels may keep naming new masters.
        if places.len() >= MOST_PLACES {
            places.clear();
        }
        let mut config = self.config.clone();
        config.resumption = Resumption::in_memory_sessions(TICKETS);
        let config = Arc::new(config);
        places.insert(address.clone(), Arc::clone(&config));
        config
    }
}

fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    settings: &TlsSettings,
    files: &Files,
) -> Result<ClientConfig, TlsError> {
    let (certificate, key) = match (&settings.certificate, &settings.key) {
        (None, None) => return Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(TlsError::new("a client certificate needs its key")),
        (None, Some(_)) => return Err(TlsError::new("a client's key needs its certificate")),
    };
    let chain = certificates_in(certificate, files.certificate.as_deref().unwrap_or_default())?;
    let secret =
        PrivateKeyDer::from_pem_slice(files.key.as_deref().unwrap_or_default()).map_err(|_| {
            TlsError::of(key, "no private key in PEM (one with a password has to be decrypted)")
        })?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::of(key, format_args!("not the key of {}", certificate.display()))
        }
        error => TlsError::of(key, error),
    })
}

fn roots_in(path: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(path, pem)? {
        roots.add(certificate).map_err(|error| TlsError::of(path, error))?;
    }
    Ok(roots)
}

fn certificates_in(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    // Details of a parse error are not shown: the line may be part of a private key.
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(TlsError::of(path, "no certificate in PEM")),
        Err(_) => Err(TlsError::of(path, "not in PEM, or cut off")),
    }
}

/// Returns the roots trusted by the system, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let reason = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    Err(TlsError::new(format!("the system has no trusted certificates{reason}: name a CA file")))
}

/// The number of tickets kept per server, as in rustls.
const TICKETS: usize = 8;

/// The maximum number of cached addresses: above 32 nodes with 32 sentinels each.
const MOST_PLACES: usize = 2_048;

const NO_ADDRESS: &str =
    "there are options for it, but no node has a rediss:// or valkeys:// address";

const ANY_MASTER: &str = "sentinels that are asked without it could name any host as the master: name the CA file (tls_ca) or \
    the name (tls_server_name) that masters have to prove";

const NO_SENTINELS: &str = "there are options for that of sentinels, and none is spoken with over it: rediss+sentinel:// or sentinel_tls does that";

/// A verifier that accepts any certificate whose private key the server has.
#[derive(Debug)]
struct AcceptAny(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use redbolt_test_servers::Authority;

    use super::*;

    type Both = (Option<Connector>, Option<Connector>);

    fn for_all(nodes: TlsSettings, own: SentinelTls, address: &str) -> Result<Both, TlsError> {
        Connector::for_all(nodes, own, &[address.parse().unwrap()])
    }

    fn refusal(settings: TlsSettings, address: &str) -> String {
        let outcome = for_all(settings, SentinelTls::default(), address);
        outcome.expect_err("it cannot be used").to_string()
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_at_once() {
        let authority = Authority::new();
        let (client, other) = (authority.client(), authority.client());
        let of = |ca: &Path, certificate: Option<&Path>, key: Option<&Path>| {
            let [certificate, key] = [certificate, key].map(|path| path.map(Path::to_owned));
            let ca = Some(ca.to_owned());
            refusal(TlsSettings { ca, certificate, key, ..TlsSettings::default() }, "rediss://h")
        };
        let (ca, gone) = (authority.ca(), authority.ca().with_file_name("gone.pem"));
        let (certificate, key) = (client.certificate.as_path(), client.key.as_path());
        let told = of(&gone, None, None);
        assert!(told.contains("gone.pem: No such file"), "{told}");
        let told = of(key, None, None);
        assert!(told.ends_with("key.pem: no certificate in PEM"), "{told}");
        let told = of(&ca, Some(certificate), Some(certificate));
        assert!(told.contains("no private key in PEM"), "{told}");
        let told = of(&ca, Some(certificate), Some(&other.key));
        assert!(told.contains("not the key of"), "{told}");
        assert!(of(&ca, Some(certificate), None).contains("needs its key"));
        assert!(of(&ca, None, Some(key)).contains("needs its certificate"));
        let half = fs::read(key).unwrap();
        fs::write(&gone, &half[..half.len() / 2]).unwrap();
        let told = of(&gone, None, None);
        assert!(told.ends_with("gone.pem: not in PEM, or cut off"), "{told}");
    }

    #[test]
    fn options_that_would_do_nothing_are_refused() {
        let ca = Some(Authority::new().ca());
        let settings = TlsSettings { ca: ca.clone(), ..TlsSettings::default() };
        assert!(refusal(settings, "redis://h").contains("no node has a rediss://"));
        let settings = TlsSettings { ca, accept_any: true, ..TlsSettings::default() };
        assert!(refusal(settings, "rediss://h").contains("of no use"));
        let plain = |address| for_all(TlsSettings::default(), SentinelTls::default(), address);
        assert!(matches!(plain("h"), Ok((None, None))));
        assert!(matches!(plain("redis+sentinel://h/jobs"), Ok((None, None))));
    }

    #[test]
    fn sentinels_have_what_is_theirs_and_else_what_is_the_nodes() {
        let authority = Authority::new();
        let [nodes, sentinels] = [authority.client(), authority.client()];
        let of = |ca: PathBuf, identity: &redbolt_test_servers::Identity| TlsSettings {
            ca: Some(ca),
            certificate: Some(identity.certificate.clone()),
            key: Some(identity.key.clone()),
            ..TlsSettings::default()
        };
        let nodes = of(authority.ca(), &nodes);
        let both = |is_on, own: TlsSettings, address| {
            let both = for_all(nodes.clone(), SentinelTls { is_on, own }, address);
            both.map(|(nodes, sentinels)| {
                [nodes, sentinels].map(|it| it.map(|it| (*it.settings).clone()))
            })
        };
        let nothing = TlsSettings::default;
        let shared = Some(nodes.clone());
        let (plain, tls) = ("redis+sentinel://h/jobs", "rediss+sentinel://h/jobs");
        assert_eq!(both(None, nothing(), tls).unwrap(), [shared.clone(), shared.clone()]);
        assert_eq!(both(Some(false), nothing(), tls).unwrap(), [shared.clone(), None]);
        assert_eq!(both(Some(true), nothing(), plain).unwrap(), [None, shared.clone()]);
        let named = TlsSettings { server_name: Some("sentinel".to_owned()), ..nothing() };
        let expected = TlsSettings { server_name: named.server_name.clone(), ..nodes.clone() };
        assert_eq!(both(None, named.clone(), tls).unwrap(), [shared.clone(), Some(expected)]);
        let own = of(Authority::new().ca(), &sentinels);
        let gone = both(None, own.clone(), tls).unwrap_err().to_string();
        assert!(gone.contains("No such file"), "{gone}");
        let own = TlsSettings { ca: Some(authority.ca()), ..own };
        let ca = TlsSettings { ca: own.ca.clone(), ..nothing() };
        let expected = TlsSettings { ca: own.ca.clone(), ..nodes.clone() };
        assert_eq!(both(Some(true), ca, plain).unwrap(), [None, Some(expected)]);
        let told = both(Some(true), own.clone(), plain).unwrap_err().to_string();
        assert!(told.contains("no node has a rediss://"), "those of the nodes do nothing: {told}");
        let half = TlsSettings { key: None, ..own.clone() };
        assert!(both(None, half, tls).unwrap_err().to_string().contains("needs its key"));
        for (is_on, own, address) in [
            (Some(false), named.clone(), tls),
            (Some(true), nothing(), "rediss://h"),
            (None, named, "rediss://h"),
        ] {
            let told = both(is_on, own, address).unwrap_err().to_string();
            assert!(told.contains("options for that of sentinels"), "{told}");
        }
    }

    /// Such a host would pass for the master and receive the password.
    #[test]
    fn plain_sentinels_cannot_name_any_host_with_a_public_certificate() {
        let authority = Authority::new();
        let both = |nodes, is_on, address| {
            let sentinels = SentinelTls { is_on, ..SentinelTls::default() };
            for_all(nodes, sentinels, address).map(drop).map_err(|error| error.to_string())
        };
        let (plain, tls) = ("redis+sentinel://h/jobs", "rediss+sentinel://h/jobs");
        let told = both(TlsSettings::default(), Some(false), tls).unwrap_err();
        assert!(told.contains("name the CA file (tls_ca) or the name (tls_server_name)"), "{told}");
        for nodes in [
            TlsSettings { ca: Some(authority.ca()), ..TlsSettings::default() },
            TlsSettings { server_name: Some("redis.example".to_owned()), ..TlsSettings::default() },
            TlsSettings { accept_any: true, ..TlsSettings::default() },
        ] {
            // The system may not have any certificates.
            let told = both(nodes, Some(false), tls).err().unwrap_or_default();
            assert!(!told.contains("tls_ca"), "{told}");
        }
        for (is_on, address) in [(None, tls), (Some(true), tls), (Some(false), plain)] {
            let told = both(TlsSettings::default(), is_on, address).err().unwrap_or_default();
            assert!(!told.contains("tls_ca"), "{told}");
        }
    }

    #[test]
    fn a_server_has_the_name_in_its_address_or_the_one_that_is_given() {
        let name = |settings: &TlsSettings, address: &str| {
            settings.name_of(&address.parse().unwrap()).map(|name| name.to_str().into_owned())
        };
        let mut settings = TlsSettings::default();
        assert_eq!(name(&settings, "rediss://redis-1.example").unwrap(), "redis-1.example");
        assert_eq!(name(&settings, "rediss://[::1]:7").unwrap(), "::1");
        settings.server_name = Some("redis.example".to_owned());
        assert_eq!(name(&settings, "rediss://10.0.0.1").unwrap(), "redis.example");
        settings.server_name = Some("no name".to_owned());
        assert!(name(&settings, "rediss://h").is_err());
    }

    #[test]
    fn no_key_is_shown() {
        let authority = Authority::new();
        let client = authority.client();
        let key = fs::read_to_string(&client.key).unwrap();
        let settings = TlsSettings {
            ca: Some(authority.ca()),
            certificate: Some(client.certificate),
            key: Some(client.key),
            ..TlsSettings::default()
        };
        let connector = for_all(settings, SentinelTls::default(), "rediss://h").unwrap();
        let shown = format!("{connector:?}");
        assert!(shown.contains("key.pem"), "{shown}");
        assert!(key.lines().all(|line| !shown.contains(line)), "{shown}");
    }
}
