//! `show ssl cert`: the certificates that frontends serve, as haproxy tells of them.

use std::time::{Duration, UNIX_EPOCH};

use ballast_core::text::Append;

use crate::os::clock::utc;
use crate::stats::{ServedCertificate, Snapshot};

/// All files, or what is in the one that is named so in the table.
pub(super) fn show(snapshot: &Snapshot, only: Option<&str>) -> Result<String, String> {
    let of_frontends = snapshot.frontends.iter().filter_map(|frontend| {
        let certificates = frontend.certificates.as_ref()?;
        Some((&*frontend.name, certificates))
    });
    let mut all: Vec<(&str, &ServedCertificate)> = of_frontends
        .flat_map(|(name, all)| all.served.iter().map(move |one| (name, one)))
        .collect();
    all.sort_by(|(_, one), (_, other)| one.file.cmp(&other.file));
    let Some(file) = only else {
        let mut files: Vec<&str> = all.iter().map(|(_, one)| &*one.file).collect();
        files.dedup();
        let lines = files.iter().flat_map(|file| [file, "\n"]);
        return Ok(["# filename\n"].into_iter().chain(lines).collect());
    };
    let mut found = all.iter().filter(|(_, one)| *one.file == *file);
    let Some((first, certificate)) = found.next() else {
        return Err(
            "Can't display the certificate: Not found or the certificate is a bundle!".into(),
        );
    };
    let frontends = found.fold((*first).to_owned(), |list, (name, _)| {
        format!("{list}, {name}")
    });
    Ok(details(certificate, &frontends))
}

fn details(certificate: &ServedCertificate, frontends: &str) -> String {
    let date = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds), DATE);
    let names = certificate.names.iter().map(|name| format!("DNS:{name}"));
    let names: Vec<String> = names.collect();
    let mut out = String::new();
    write!(
        out,
        "Filename: {}\nStatus: Used\nSerial: {}\nnotBefore: {}\nnotAfter: {}\nSubject Alternative Name: {}\nSubject: {}\nIssuer: {}\nFrontends: {frontends}\n",
        certificate.file,
        certificate.serial,
        date(certificate.period.not_before),
        date(certificate.period.not_after),
        names.join(", "),
        certificate.subject,
        certificate.issuer,
    );
    out
}

/// `Nov 26 00:33:51 2026 GMT`, as OpenSSL writes it.
const DATE: &str = "%b %e %H:%M:%S %Y GMT";
