//! Authorities, certificates and keys, made for one test and written to files of its own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

/// An authority, and a folder for what it signs.
pub struct Papers {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    #[expect(clippy::new_without_default, reason = "it makes files and keys")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Who has the name of another authority is taken for that one.
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("Authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
        let papers = Self {
            folder: tempfile::tempdir().expect("a folder"),
            authority,
        };
        papers.write("ca.pem", papers.authority.pem().as_bytes());
        papers
    }

    /// Writes `NAME.crt` and `NAME.key`, for these host names.
    pub fn issue(&self, name: &str, hosts: &[&str]) {
        self.write_pair(name, Self::params(name, hosts));
    }

    /// The same with a period, from and to a second since 1970.
    pub fn issue_for(&self, name: &str, hosts: &[&str], (start, end): (u64, u64)) {
        let at = |second| date_time_ymd(1970, 1, 1) + Duration::from_secs(second);
        let mut params = Self::params(name, hosts);
        (params.not_before, params.not_after) = (at(start), at(end));
        self.write_pair(name, params);
    }

    /// Writes `NAME.crt` and `NAME.key`, as `openssl req -x509` does: signed by itself, and an authority.
    pub fn sign_itself(&self, name: &str, hosts: &[&str], is_expired: bool) {
        let mut params = Self::params(name, hosts);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        if is_expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = key();
        let certificate = params.self_signed(&key).expect("a certificate");
        self.write(&format!("{name}.crt"), certificate.pem().as_bytes());
        self.write(&format!("{name}.key"), key.serialize_pem().as_bytes());
    }

    /// Writes `NAME.crt` and `NAME.key`, signed by itself and no authority, and `of-NAME.crt` and its key, which it signed all the
    /// same.
    pub fn sign_itself_alone(&self, name: &str, hosts: &[&str]) {
        let mut params = Self::params(name, hosts);
        params.is_ca = IsCa::ExplicitNoCa;
        let signer = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
        let (of, of_key) = (format!("of-{name}"), key());
        let signed = Self::params(&of, hosts).signed_by(&of_key, &signer);
        let signed = signed.expect("a certificate").pem();
        for (name, certificate, key) in [(name, signer.pem(), signer.key()), (&of, signed, &of_key)]
        {
            self.write(&format!("{name}.crt"), certificate.as_bytes());
            self.write(&format!("{name}.key"), key.serialize_pem().as_bytes());
        }
    }

    fn params(name: &str, hosts: &[&str]) -> CertificateParams {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("host names");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Shop, Inc.");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn write_pair(&self, name: &str, params: CertificateParams) {
        let key = key();
        let certificate = params
            .signed_by(&key, &self.authority)
            .expect("a certificate");
        self.write(&format!("{name}.crt"), certificate.pem().as_bytes());
        self.write(&format!("{name}.key"), key.serialize_pem().as_bytes());
    }

    /// Replaces a file by a rename.
    pub fn write(&self, file: &str, bytes: &[u8]) {
        let draft = self.folder.path().join("draft");
        fs::write(&draft, bytes).expect("a file");
        fs::rename(draft, self.path(file)).expect("a rename");
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The path as the table has it.
    pub fn named(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    /// The entry of `certificates` for what was issued by this name.
    pub fn entry(&self, name: &str) -> String {
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        format!("{{cert: {}, key: {}}}", self.named(&cert), self.named(&key))
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let authority = self.authority.der().clone();
        roots.add(authority).expect("an authority");
        Arc::new(roots)
    }

    pub fn pair(&self, name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_file(self.path(&format!("{name}.crt")));
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
        (
            vec![certificate.expect("a certificate")],
            key.expect("a key"),
        )
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key")
}
