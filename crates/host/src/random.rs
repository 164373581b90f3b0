//! Random text that cannot be guessed.

use std::io;

/// 32 random bytes of the kernel as 64 hexadecimal digits.
///
/// Errors: the kernel gives none.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    sys::random::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_and_have_64_digits() {
        let (one, two) = (random_hex().unwrap(), random_hex().unwrap());
        assert!(one.len() == 64 && one != two);
    }
}
