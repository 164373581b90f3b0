//! A certificate authority for tests, with one certificate that it signed for servers on loopback.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{USER, folder, is_root};
use crate::is_installed;

/// An authority. Its files are in a temporary folder that the servers' user can read.
pub struct Authority {
    folder: TempDir,
    /// Loopback address of the servers.
    address: String,
}

impl Authority {
    /// Makes keys and certificates, by `openssl`. `None`, with a skip, if it is not installed.
    #[track_caller]
    pub fn new() -> Option<Authority> {
        if !is_installed("openssl") {
            return None;
        }
        let [_, a, b, c] = std::process::id().to_be_bytes();
        // Its own for each process: a server on a fixed port disturbs no other one.
        let address = format!("127.{}.{b}.{}", 64 + a % 128, c.clamp(1, 254));
        let authority = Authority { folder: folder("wirepath-authority-"), address };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let own = [
            "-x509",
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ];
        authority.openssl(&[&["req"], &key[..], &own].concat());
        let asked = ["-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr"];
        authority.openssl(&[&["req"], &key[..], &asked].concat());
        let names = format!("subjectAltName=IP:127.0.0.1,IP:{}", authority.address);
        fs::write(authority.file("names"), names).expect("a file of the folder");
        let sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"];
        let files = ["-in", "server.csr", "-out", "server.pem", "-days", "2"];
        authority.openssl(&[&["x509", "-req"], &sign[..], &files].concat());
        if is_root() {
            for name in ["server.key", "server.pem"] {
                chown(authority.file(name), Some(USER), Some(USER)).expect("root may");
            }
        }
        Some(authority)
    }

    /// Loopback address that the certificate is for, beside 127.0.0.1.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its own certificate.
    pub fn file_of_ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Text of its own certificate.
    pub fn ca(&self) -> String {
        fs::read_to_string(self.file_of_ca()).expect("openssl wrote it")
    }

    /// Certificate and key of the servers.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.file("server.pem"), self.file("server.key"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, args: &[&str]) {
        let mut openssl = Command::new("openssl");
        let out = openssl.args(args).current_dir(self.folder.path()).output().expect("it runs");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
