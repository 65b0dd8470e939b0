//! Passwords and certificates: read again at every connect, so that they can be changed.

use crate::redis::connection::Connector;
use crate::redis::error::Error;
use crate::redis::target::{PasswordSource, Secret};

impl Connector {
    pub(super) fn password(&self) -> Result<Option<Secret>, Error> {
        match &self.target.password {
            PasswordSource::Url => Ok(self.target.url_password.clone()),
            PasswordSource::Given(secret) => Ok(Some(secret.clone())),
            PasswordSource::File(path) => {
                let bytes = read("password file", path)?;
                let text = String::from_utf8(bytes).map_err(|_| Error::File {
                    what: "password file",
                    path: path.display().to_string(),
                    detail: "it is not UTF-8".to_owned(),
                })?;
                Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
            }
        }
    }

    pub(super) fn certificates(&self) -> Result<redis::TlsCertificates, Error> {
        // The library asks the process for one. If there is one already, that one stays.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let tls = &self.target.tls;
        let root_cert = match &tls.ca {
            Some(path) => Some(read("ca certificate", path)?),
            None => None,
        };
        let client_tls = match &tls.client {
            Some((cert, key)) => Some(redis::ClientTlsConfig {
                client_cert: read("client certificate", cert)?,
                client_key: read("client key", key)?,
            }),
            None => None,
        };
        Ok(redis::TlsCertificates {
            client_tls,
            root_cert,
        })
    }
}

fn read(what: &'static str, path: &std::path::Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::File {
        what,
        path: path.display().to_string(),
        detail: error.to_string(),
    })
}
