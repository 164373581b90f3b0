//! `wirepath feed exchange`: the far end of `prove feed --far`, which starts it.

use remote::Failure;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

/// Answers the requests on standard input, until it ends.
pub(super) fn run() -> Result<(), Failure> {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut say = |line: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())
    };
    Ok(feed::serve_exchange(input, &mut say)?)
}
