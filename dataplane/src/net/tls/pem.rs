//! Reads certificates, keys and authorities from PEM files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::trust::Trusted;
use crate::os::files::NamedFiles;

/// The bytes of a file that the table names.
pub(super) fn read<'a>(files: &'a NamedFiles, name: &Path) -> Result<&'a [u8], String> {
    files
        .get(name)
        .map_err(|fault| format!("{}: {fault}", name.display()))
}

/// The certificates of a PEM file, of which there is at least one.
pub(super) fn certificates(
    bytes: &[u8],
    name: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!(
            "{}: has no certificate in PEM form",
            name.display()
        )),
        Err(_) => Err(format!("{}: is broken PEM", name.display())),
    }
}

/// The first key of a PEM file.
pub(super) fn key(bytes: &[u8], name: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes)
        .map_err(|_| format!("{}: has no unencrypted key in PEM form", name.display()))
}

/// The authorities of a PEM file, of which there is at least one.
pub(crate) fn authorities(files: &NamedFiles, name: &Path) -> Result<Arc<Trusted>, String> {
    let certificates = certificates(read(files, name)?, name)?;
    let trusted = Trusted::new(certificates).map_err(|_| {
        format!(
            "{}: contains something that is not a certificate",
            name.display()
        )
    })?;
    Ok(Arc::new(trusted))
}
