//! Certificates with their keys, by the files that hold them. Several frontends and services may use the same ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;

use ballast_core::certificate::Period;
use ballast_core::handover::{KeptCertificate, PairFiles};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use sha2::{Digest, Sha256};

use super::{pem, x509};
use crate::os::files::NamedFiles;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CertificateFiles {
    cert: PathBuf,
    /// `None`: the key is in `cert` too.
    key: Option<PathBuf>,
    ocsp: Option<PathBuf>,
}

impl CertificateFiles {
    pub(super) fn new(cert: &Path, key: Option<&Path>, ocsp: Option<&Path>) -> Self {
        Self {
            cert: cert.into(),
            key: key.map(Into::into),
            ocsp: ocsp.map(Into::into),
        }
    }

    /// The whole paths of certificate and key, where the table that names them is in this folder.
    fn within(&self, folder: &Path) -> Option<PairFiles> {
        let whole = |file: &PathBuf| Some(path::absolute(folder.join(file)).ok()?.to_str()?.into());
        Some(PairFiles {
            cert: whole(&self.cert)?,
            key: match &self.key {
                Some(key) => Some(whole(key)?),
                None => None,
            },
        })
    }
}

/// A certificate, as far as it can be used.
#[derive(Debug)]
pub(super) struct Certificate {
    /// The digest of its files.
    digest: [u8; 32],
    /// Its host names, as far as they are known.
    pub(super) names: Arc<[Box<str>]>,
    /// When it is valid; `None`: it cannot be used.
    pub(super) period: Option<Period>,
    /// The certificate, its key and its OCSP answer; `None`: it cannot be used.
    pub(super) key: Option<Arc<CertifiedKey>>,
    /// The private key, for the next process.
    private: Option<Arc<PrivateKeyDer<'static>>>,
    /// Whether its files can be read, and do not fit one another.
    is_unfit: bool,
    /// The problem with its files, as a sentence.
    pub(super) problem: Option<String>,
}

/// All certificates of one plan.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    before: BTreeMap<CertificateFiles, Arc<Certificate>>,
    now: BTreeMap<CertificateFiles, Arc<Certificate>>,
}

impl Certificates {
    /// The certificates of the plan after the one that had these. Those that it uses again, unchanged, are not read again.
    pub(super) fn following(before: &Self) -> Self {
        Self {
            before: before.now.clone(),
            now: BTreeMap::new(),
        }
    }

    /// The certificate in these files.
    pub(super) fn get(
        &mut self,
        files: CertificateFiles,
        named: &NamedFiles,
        provider: &CryptoProvider,
    ) -> Arc<Certificate> {
        if let Some(known) = self.now.get(&files) {
            return Arc::clone(known);
        }
        let before = self.before.get(&files);
        let digest = digest(&files, named);
        let certificate = match before {
            Some(before) if before.digest == digest => Arc::clone(before),
            _ => Arc::new(load(
                &files,
                named,
                provider,
                digest,
                before.map(Arc::as_ref),
            )),
        };
        self.now.insert(files, Arc::clone(&certificate));
        certificate
    }

    /// The files of the certificates that cannot be used because they do not fit one another. `folder` is that of the table.
    pub(super) fn unusable(&self, folder: &Path) -> Vec<PairFiles> {
        let unusable = self.now.iter();
        unusable
            .filter(|(_, known)| known.key.is_none() && known.is_unfit)
            .filter_map(|(files, _)| files.within(folder))
            .collect()
    }

    /// The certificates of `wanted` files, for the next process, to which they do not fit one another. One that wants none may be of the
    /// version before, which does not ask: it gets those of files that do not fit one another here.
    pub(super) fn lend(&self, wanted: &[PairFiles], folder: &Path) -> Vec<KeptCertificate> {
        let wanted: BTreeSet<&PairFiles> = wanted.iter().collect();
        let all = self.now.iter().filter_map(|(files, known)| {
            let is_lent = |files: &PairFiles| {
                if wanted.is_empty() {
                    known.is_unfit
                } else {
                    wanted.contains(files)
                }
            };
            let files = files.within(folder).filter(is_lent)?;
            let (key, private) = (known.key.as_ref()?, known.private.as_ref()?);
            Some(KeptCertificate {
                files,
                chain: key.cert.iter().map(|one| STANDARD.encode(one)).collect(),
                private: STANDARD.encode(private.secret_der()),
                answer: key.ocsp.as_ref().map(|answer| STANDARD.encode(answer)),
            })
        });
        all.collect()
    }

    /// Goes on with the certificates of the process before whose files do not fit one another for this process. Returns whether there
    /// are any.
    pub(super) fn resume(
        &mut self,
        kept: &[KeptCertificate],
        folder: &Path,
        provider: &CryptoProvider,
    ) -> bool {
        let kept: BTreeMap<&PairFiles, &KeptCertificate> =
            kept.iter().map(|kept| (&kept.files, kept)).collect();
        let mut has_others = false;
        for (files, known) in &mut self.now {
            let is_missing = known.key.is_none() && known.is_unfit;
            let Some(files) = files.within(folder).filter(|_| is_missing) else {
                continue;
            };
            let before = kept.get(&files);
            if let Some(before) = before.and_then(|kept| resumed(kept, provider)) {
                *known = Arc::new(before);
                has_others = true;
            }
        }
        has_others
    }

    /// Forgets the certificates of the plan before.
    pub(super) fn finished(mut self) -> Self {
        self.before.clear();
        self
    }
}

fn digest(files: &CertificateFiles, named: &NamedFiles) -> [u8; 32] {
    let mut whole = Sha256::new();
    for file in [Some(&files.cert), files.key.as_ref(), files.ocsp.as_ref()] {
        match file.map(|file| named.get(file)) {
            Some(Ok(bytes)) => whole.update(Sha256::digest(bytes)),
            Some(Err(_)) => whole.update([1]),
            None => whole.update([0]),
        }
    }
    whole.finalize().into()
}

/// The certificate of the process before; `None`: it is none.
fn resumed(kept: &KeptCertificate, provider: &CryptoProvider) -> Option<Certificate> {
    let decode = |text: &String| STANDARD.decode(text).ok();
    let chain = kept.chain.iter().map(decode);
    let chain: Option<Vec<_>> = chain.map(|one| Some(CertificateDer::from(one?))).collect();
    let private = PrivateKeyDer::try_from(decode(&kept.private)?).ok()?;
    let chain = chain?;
    let x509::Use { names, period } = chain.first().and_then(x509::use_of)?;
    let (mut key, private) = certified(chain, private, provider).ok()?;
    key.ocsp = kept.answer.as_ref().and_then(decode);
    Some(Certificate {
        // No files have this digest, so they are looked at again, with this certificate as the one before.
        digest: [0; 32],
        names,
        period: Some(period),
        key: Some(Arc::new(key)),
        private: Some(private),
        is_unfit: true,
        problem: None,
    })
}

/// Loads a certificate. While its files are being replaced they may not fit one another: until they do, the certificate of
/// `before` stays. A file that cannot be read takes the certificate out at once.
fn load(
    files: &CertificateFiles,
    named: &NamedFiles,
    provider: &CryptoProvider,
    digest: [u8; 32],
    before: Option<&Certificate>,
) -> Certificate {
    let bytes = match Bytes::read(files, named) {
        Ok(bytes) => bytes,
        Err(why) => {
            return Certificate {
                digest,
                names: before.map_or_else(Arc::default, |before| Arc::clone(&before.names)),
                period: None,
                key: None,
                private: None,
                is_unfit: false,
                problem: Some(why),
            };
        }
    };
    let (names, fitted) = fit(&bytes, files, provider);
    let why = match fitted {
        Ok(((key, private), period)) => {
            let (key, problem) = staple(key, files, named);
            return Certificate {
                digest,
                names,
                period: Some(period),
                key: Some(Arc::new(key)),
                private: Some(private),
                is_unfit: false,
                problem,
            };
        }
        Err(why) => why,
    };
    match before {
        Some(before) if before.key.is_some() => Certificate {
            digest,
            names: Arc::clone(&before.names),
            period: before.period,
            key: before.key.clone(),
            private: before.private.clone(),
            is_unfit: true,
            problem: Some(format!(
                "{why}; until that is mended, what was there before is used"
            )),
        },
        _ => Certificate {
            digest,
            names: match (names.is_empty(), before) {
                (true, Some(before)) => Arc::clone(&before.names),
                _ => names,
            },
            period: None,
            key: None,
            private: None,
            is_unfit: true,
            problem: Some(why),
        },
    }
}

struct Bytes<'a> {
    cert: &'a [u8],
    key: &'a [u8],
    key_name: &'a Path,
}

impl<'a> Bytes<'a> {
    fn read(files: &'a CertificateFiles, named: &'a NamedFiles) -> Result<Self, String> {
        let key_name = files.key.as_deref().unwrap_or(&files.cert);
        Ok(Self {
            cert: pem::read(named, &files.cert)?,
            key: pem::read(named, key_name)?,
            key_name,
        })
    }
}

/// The names of the certificate as far as they can be read; and the certificate with its key, if they fit one another, and its
/// period.
#[expect(
    clippy::type_complexity,
    reason = "the names are known also where the rest is not"
)]
fn fit(
    bytes: &Bytes<'_>,
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> (Arc<[Box<str>]>, Result<(Pair, Period), String>) {
    let chain = match pem::certificates(bytes.cert, &files.cert) {
        Ok(chain) => chain,
        Err(why) => return (Arc::default(), Err(why)),
    };
    let Some(x509::Use { names, period }) = chain.first().and_then(x509::use_of) else {
        let why = format!("{}: its certificate cannot be read", files.cert.display());
        return (Arc::default(), Err(why));
    };
    let key = pem::key(bytes.key, bytes.key_name).map_err(|why| match files.key {
        Some(_) => why,
        None => format!("{why}, and the table names no other file with the key"),
    });
    let fitted = key.and_then(|key| {
        certified(chain, key, provider).map_err(|unfit| match unfit {
            Unfit::Key => format!("{}: its key cannot be used", bytes.key_name.display()),
            Unfit::Pair => format!(
                "{}: is not the key of the certificate in {}",
                bytes.key_name.display(),
                files.cert.display()
            ),
        })
    });
    (names, fitted.map(|key| (key, period)))
}

/// A certificate with its key as the handshake needs it, and as its file has it.
type Pair = (CertifiedKey, Arc<PrivateKeyDer<'static>>);

/// Why a certificate and a key are no pair.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    Key,
    Pair,
}

/// The certificate with its key.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Pair, Unfit> {
    let private = Arc::new(key.clone_key());
    let key = provider.key_provider.load_private_key(key);
    let certified = CertifiedKey::new(chain, key.map_err(|_| Unfit::Key)?);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        // rustls reads no certificate of X.509 version 1. Clients may trust it all the same, so it is served as it is.
        Err(Error::InvalidCertificate(_)) if x509::has_key(&certified) => {}
        Err(_) => return Err(Unfit::Pair),
    }
    Ok((certified, private))
}

/// Adds the OCSP answer. Without it the certificate is served all the same: clients may ask the authority themselves.
fn staple(
    mut key: CertifiedKey,
    files: &CertificateFiles,
    named: &NamedFiles,
) -> (CertifiedKey, Option<String>) {
    let read = files.ocsp.as_deref().map(|ocsp| pem::read(named, ocsp));
    match read {
        None => (key, None),
        Some(Ok(answer)) => {
            key.ocsp = (!answer.is_empty()).then(|| answer.to_vec());
            (key, None)
        }
        Some(Err(why)) => {
            let why = format!("{why}, so its certificate is served without an OCSP answer");
            (key, Some(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;
    use rustls::server::ParsedCertificate;

    use super::super::client::reason;
    use super::*;

    #[test]
    fn a_certificate_of_version_1_is_served_and_has_a_reason_where_it_is_refused() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let chain = vec![CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap()];
        let refused = ParsedCertificate::try_from(&chain[0])
            .map(drop)
            .unwrap_err();
        assert!(reason(&refused).contains("X.509 version 1"), "{refused:?}");
        let key = PrivateKeyDer::from_pem_slice(ITS_KEY.as_bytes()).unwrap();
        assert!(certified(chain.clone(), key, &provider).is_ok());
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let other = PrivateKeyDer::from_pem_slice(other.as_bytes()).unwrap();
        assert_eq!(certified(chain, other, &provider).unwrap_err(), Unfit::Pair);
    }

    /// Of `openssl x509 -req`, for shop.test.
    const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBJDCBywIULY9vqGCp3/9s5w4y1zB8w4M2uIwwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJc2hvcC50ZXN0MCAXDTI2MTEyNjExMDU0NVoYDzIxMjYxMTAyMTEwNTQ1
WjAUMRIwEAYDVQQDDAlzaG9wLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATHwO2LA1meap9ug4l9MBx2ZUabajEobp9F4L7YTpm9jwwS3/GC/51XvRiEeiHh
U/2wKLqMdJTC+5WMXU2DQn/xMAoGCCqGSM49BAMCA0gAMEUCIQCjSuF7U8R3qbhg
u0purev1oFK6Cyuj82zvSWZCl5EXqwIgKlvQenCe/SYWZ5d77TXWVu+YHdXHw+rh
FjAiOMgKom8=
-----END CERTIFICATE-----";
    const ITS_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzJeD55TMJiatwafi
mPkvnWrhgk8tjZFPXYlab9bLZ7ChRANCAATHwO2LA1meap9ug4l9MBx2ZUabajEo
bp9F4L7YTpm9jwwS3/GC/51XvRiEeiHhU/2wKLqMdJTC+5WMXU2DQn/x
-----END PRIVATE KEY-----";
}
