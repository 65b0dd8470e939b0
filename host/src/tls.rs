//! The encryption of HTTP and of telemetry: the certificates that are trusted.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// TLS that trusts the certificates of this file, or else those of the system. A system without any
/// trusts those that Mozilla trusts. It offers HTTP/2 and HTTP/1.1.
pub(crate) fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    config(ca).map(|config| TlsConnector::from(Arc::new(config)))
}

/// The same, for other connectors.
pub(crate) fn config(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = match ca {
        Some(path) => of_file(path)?,
        None => of_system(),
    };
    trusting(roots)
}

/// The same, where no connection is encrypted: reading the system's certificates takes 0.1 s.
pub(crate) fn unused() -> Result<ClientConfig, String> {
    trusting(RootCertStore::empty())
}

fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn of_file(path: &Path) -> Result<RootCertStore, String> {
    let wrong =
        |why: &dyn Display| format!("cannot read the certificates in {}: {why}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    match roots.is_empty() {
        true => Err(wrong(&"the file has no certificate")),
        false => Ok(roots),
    }
}

fn of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}
