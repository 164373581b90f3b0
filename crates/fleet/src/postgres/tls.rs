//! Encryption of the connection to the database: always, except to this machine.

use std::net::IpAddr;
use std::sync::Arc;

use postgres::Config;
use postgres::config::{Host, SslMode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::book::BookError;

/// Requires encryption where the server is on another host, or where a certificate authority is given.
///
/// - `ca`: certificates of the authority (PEM) that signed the server's.
///
/// Returns the client's side of it; `None` for a connection that stays on this machine. Errors: the address
/// leaves this machine, and encryption is off or no authority is known.
pub(super) fn encryption(
    config: &mut Config,
    server: &str,
    ca: Option<&str>,
) -> Result<Option<MakeRustlsConnect>, BookError> {
    let refuse = |why: &str| BookError::Unencrypted { server: server.to_owned(), why: why.into() };
    match (ca, is_remote(config)) {
        (None, false) => {
            config.ssl_mode(SslMode::Disable);
            Ok(None)
        }
        (None, true) => Err(refuse("no certificate authority is known")),
        (Some(_), _) if config.get_ssl_mode() == SslMode::Disable => {
            Err(refuse("its address has sslmode=disable"))
        }
        (Some(pem), _) => {
            config.ssl_mode(SslMode::Require);
            let client = client(pem).map_err(|why| refuse(&why))?;
            Ok(Some(MakeRustlsConnect::new(client)))
        }
    }
}

/// True if one of the addresses is neither a socket of this machine nor a loopback address.
fn is_remote(config: &Config) -> bool {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        // These are connected to; the names are then only checked.
        return addresses.iter().any(|address| !address.is_loopback());
    }
    config.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => !is_loopback(name),
        Host::Unix(_) => false,
    })
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Errors: the text holds no certificate of an authority.
fn client(pem: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|e| format!("its certificate authority: {e}"))?;
        roots.add(certificate).map_err(|e| format!("its certificate authority: {e}"))?;
    }
    if roots.is_empty() {
        return Err("its certificate authority has no certificate (PEM)".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(address: &str, ca: Option<&str>) -> Option<String> {
        let mut config: Config = address.parse().unwrap();
        encryption(&mut config, "db", ca).err().map(|error| error.to_string())
    }

    #[test]
    fn only_connections_of_this_machine_may_be_plain() {
        for local in ["host=/run/postgresql", "host=localhost", "host=127.1.2.3", "host=::1"] {
            assert_eq!(refusal(local, None), None, "{local}");
        }
        let remote = [
            "host=db.example",
            "host=10.0.0.1",
            "host=/run/postgresql,db",
            "host=localhost hostaddr=10.0.0.1",
        ];
        for remote in remote {
            let why = refusal(remote, None).expect(remote);
            assert!(why.contains("--database-ca"), "{remote}: {why}");
        }
        let disabled = refusal("host=db sslmode=disable", Some("x")).expect("refused");
        assert!(disabled.contains("sslmode"), "{disabled}");
        assert!(refusal("host=db", Some("x")).expect("refused").contains("no certificate"));
    }
}
