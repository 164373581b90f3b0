//! Names of functions as their authors wrote them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

use crate::text::printable;

/// Longest name, characters.
pub(super) const NAME_LEN_MAX: usize = 200;
/// Longest name in a file that is read, bytes.
const RAW_BYTES_MAX: usize = 4096;

/// Text that takes no more than it has room for: a few bytes may name a gigabyte.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > 2 * RAW_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A function's name in Rust or C++ without its types and hashes; any other name as it is.
pub(super) fn demangled(raw: &[u8]) -> String {
    let raw = &raw[..raw.len().min(RAW_BYTES_MAX)];
    let text = String::from_utf8_lossy(raw);
    // The clone of a part of a function, or a version: `f.cold`, `f.isra.0`, `f@@GLIBC_2.2`.
    let plain = text.split('@').next().unwrap_or_default();
    let name = rust_name(plain).or_else(|| cpp_name(plain)).unwrap_or_else(|| plain.to_owned());
    printable(&name, NAME_LEN_MAX)
}

fn rust_name(name: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded(String::new());
    write!(text, "{name:#}").ok()?;
    Some(text.0)
}

fn cpp_name(name: &str) -> Option<String> {
    let symbol = name.starts_with("_Z").then(|| Symbol::new(name.as_bytes()).ok())??;
    let options = DemangleOptions::new().no_params().no_return_type();
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (raw, name) in [
            ("handle_request", "handle_request"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC7mycrate3foo", "mycrate::foo"),
            ("_ZN3net6Server6handleERKSs", "net::Server::handle"),
            ("_Znonsense", "_Znonsense"),
            ("a\u{1b}[31mb", "a[31mb"),
        ] {
            assert_eq!(demangled(raw.as_bytes()), name, "{raw}");
        }
        assert_eq!(demangled(&[b'x'; 9000]).len(), NAME_LEN_MAX);
    }
}
