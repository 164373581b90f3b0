//! Versions of peer programs, for the tables.

use std::process::Command;

/// Longest text that is taken for a version, letters.
const VERSION_LEN_MAX: usize = 24;

/// Version that an installed program prints; `None` if it prints none.
pub fn version_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    version_in(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

/// The first version in a text: a word of digits and at least one dot.
pub fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || "'\"(),:;".contains(c));
    let word = words.map(|word| word.trim_start_matches('v')).find(|word| {
        let mut parts = word.split('.');
        [parts.next(), parts.next()]
            .iter()
            .all(|part| part.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit())))
    })?;
    // sockperf names its build so where it was not built from a repository.
    let word = word.trim_end_matches("-no.git");
    Some(word.chars().filter(char::is_ascii_graphic).take(VERSION_LEN_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_first_word_of_numbers_with_a_dot() {
        for (text, version) in [
            ("iperf 3.12 (cJSON 1.7.15)\nLinux host 6.1.0 #1", Some("3.12")),
            ("iperf 3.21+ (cJSON 1.7.15)", Some("3.21+")),
            ("sockperf, version 3.7-no.git\n   compiled 2021-08-23", Some("3.7")),
            ("irtt version: 0.9.0\nprotocol version: 1", Some("0.9.0")),
            ("EAL: Detected CPU lcores: 2\nEAL: RTE Version: 'DPDK 22.11.11'", Some("22.11.11")),
            ("xdp-bench version 1.5.4 using libbpf version 1.5.0", Some("1.5.4")),
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)", Some("7.2.22")),
            ("usage: x [-v]. See http://x.y/1", None),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
        assert_eq!(version_of("wirepath-no-such-program", &["--version"]), None);
    }
}
