//! Certificates for tests: a CA, and the certificates that it signs, in files of a temporary
//! directory. Each test creates new ones.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// A CA. Dropping it removes all its files.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    home: TempDir,
    issued: AtomicUsize,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// Creates a CA with a new key.
    pub fn new() -> Self {
        Self::named("redbolt test CA")
    }

    /// Creates a CA with this name.
    pub fn named(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let home = tempfile::Builder::new().prefix("redbolt-ca-").tempdir().unwrap();
        fs::write(home.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, home, issued: AtomicUsize::new(0) }
    }

    /// Returns the file with the CA's own certificate.
    pub fn ca(&self) -> PathBuf {
        self.home.path().join("ca.pem")
    }

    /// Returns a certificate for a server on this machine, by any of its names.
    pub fn server(&self) -> Identity {
        self.issue(CertificateParams::new(names(&["127.0.0.1", "::1", "localhost"])).unwrap())
    }

    /// Returns a certificate for a server with this name only.
    pub fn server_named(&self, name: &str) -> Identity {
        self.issue(CertificateParams::new(names(&[name])).unwrap())
    }

    /// Returns a certificate for a server on this machine, which expired long ago.
    pub fn expired(&self) -> Identity {
        let mut params = CertificateParams::new(names(&["127.0.0.1", "localhost"])).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.issue(params)
    }

    /// Returns a certificate for a server on this machine, which is not valid for a long time yet.
    pub fn not_yet_valid(&self) -> Identity {
        let mut params = CertificateParams::new(names(&["127.0.0.1", "localhost"])).unwrap();
        params.not_before = date_time_ymd(2200, 1, 1);
        self.issue(params)
    }

    /// Returns a certificate for a client.
    pub fn client(&self) -> Identity {
        let mut params = named("redbolt test client");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let path = |what: &str| self.home.path().join(format!("{number}-{what}.pem"));
        let identity = Identity { certificate: path("certificate"), key: path("key") };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
