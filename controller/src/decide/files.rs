//! The files that a table names, and where the bytes of each come from. `node::folder` writes them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use ballast_core::table::Certificate;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::observe::{Key, Material};
use crate::pem::{self, CERT, Flaw, KEY};
use crate::settings::{ErrorPage, Settings};

/// A file in the folder of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WantedFile {
    pub path: String,
    pub from: Source,
}

/// Where the bytes of a file come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    File(PathBuf),
    /// A URL that is fetched once.
    Url(String),
    /// The bytes themselves.
    Text(&'static str),
    Secret(Key, &'static str),
}

impl WantedFile {
    /// The certificate of `--ssl-cert`; its file has the key too.
    pub(super) fn default_certificate() -> Certificate {
        Certificate {
            cert: PathBuf::from(DEFAULT_CERT).into(),
            key: None,
            ocsp: None,
            hosts: None,
        }
    }

    /// The certificate of a Secret, and its two files.
    pub(super) fn of_secret(key: &Key) -> (Certificate, [Self; 2]) {
        let stem = stem(key);
        let path = |ending: &str| format!("tls/{stem}.{ending}");
        let wanted = [("crt", "tls.crt"), ("key", "tls.key")].map(|(ending, entry)| Self {
            path: path(ending),
            from: Source::Secret(key.clone(), entry),
        });
        let certificate = Certificate {
            cert: PathBuf::from(path("crt")).into(),
            key: Some(PathBuf::from(path("key")).into()),
            ocsp: None,
            hosts: None,
        };
        (certificate, wanted)
    }
}

/// The name of a Secret's files without their ending: NAMESPACE.NAME, shortened with a digest if it is too long. Kubernetes
/// allows no `_` in names, so a shortened name is no other Secret's.
fn stem(key: &Key) -> String {
    let whole = format!("{}.{}", key.namespace, key.name);
    if whole.len() <= LONGEST_STEM {
        return whole;
    }
    let mut stem: String = whole.chars().take(SHORTENED).collect();
    stem.push('_');
    for byte in Sha256::digest(&whole) {
        // A String takes everything.
        _ = write!(stem, "{byte:02x}");
    }
    stem
}

/// The files that flags name.
pub(super) fn settings_files(settings: &Settings) -> BTreeSet<WantedFile> {
    let flags = &settings.flags;
    let file = |path: &str, from: Option<Source>| {
        let path = path.to_owned();
        from.map(|from| WantedFile { path, from })
    };
    let page = flags.error_page.as_ref().map(|page| match page {
        ErrorPage::File(path) => Source::File(path.clone()),
        ErrorPage::Url(url) => Source::Url(url.clone()),
    });
    let files = [
        file(DEFAULT_CERT, flags.ssl_cert.clone().map(Source::File)),
        file(CLIENT_CA, flags.ssl_ca_cert.clone().map(Source::File)),
        file(ERROR_PAGE, page),
        file(
            HEALTHZ,
            settings.answers_healthz().then_some(Source::Text("ok\n")),
        ),
    ];
    files.into_iter().flatten().collect()
}

/// The reason for which a Secret cannot be used: its certificate or its key is missing or malformed, or the key is not the
/// certificate's.
pub(super) fn flaw(material: &Material) -> Option<&str> {
    material.flaw(|material| {
        let remedy = "kubectl create secret tls makes one that can be used";
        for (entry, part) in [("tls.crt", CERT), ("tls.key", KEY)] {
            if let Some(size) = material.too_large(entry) {
                return Some(format!(
                    "has {size} bytes in its entry {entry}, and at most {} are taken; leave out certificates that are not of its chain",
                    Material::LARGEST
                ));
            }
            let Some(bytes) = material.entry(entry) else {
                return Some(format!("has no entry {entry}; {remedy}"));
            };
            let why = match part.flaw(bytes) {
                None => continue,
                Some(Flaw::Encrypted) => format!(
                    "has an encrypted key in its entry {entry}; Ballast knows no passphrase: give the key without one"
                ),
                Some(Flaw::None(_)) => format!("has no PEM in its entry {entry}; {remedy}"),
            };
            return Some(why);
        }
        let why = pem::pair_flaw(material.entry("tls.crt")?, material.entry("tls.key")?)?;
        Some(format!("{why}; {remedy}"))
    })
}

/// File names have at most 255 bytes, and a file has one more ending while it is written.
const LONGEST_STEM: usize = 200;

const SHORTENED: usize = 120;

/// The file of `--ssl-cert`.
const DEFAULT_CERT: &str = "tls/default.pem";

/// The file of `--ssl-ca-cert`.
pub(super) const CLIENT_CA: &str = "tls/clients.pem";

/// What service-loadbalancer answered at `/healthz`.
pub(super) const HEALTHZ: &str = "healthz.txt";

/// The file of `--error-page`.
pub(super) const ERROR_PAGE: &str = "errors/default.html";
