//! Random bytes of the kernel, which cannot be guessed.

use std::io;

/// Fills `bytes`.
///
/// Source: getrandom(2).
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: pointer and length describe `rest`; the kernel writes at most that much.
        let rc = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(rc) {
            Ok(len) => filled += len,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written() {
        let mut sum = [0; 1000];
        for _ in 0..20 {
            let mut bytes = [0; 1000];
            fill(&mut bytes).unwrap();
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum |= byte);
        }
        assert!(sum.iter().all(|byte| *byte != 0));
    }
}
