//! `wirepath peer`, and shared secrets.

use paths::probe::peer::{PeerOptions, serve};

use crate::args::{PeerArgs, SecretArgs};
use crate::end::Failure;
use crate::{console, stop};

/// The secret in the file, without the line break at its end.
pub(crate) fn secret(args: &SecretArgs) -> Result<Option<String>, Failure> {
    let Some(file) = &args.secret_file else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::Usage(format!("cannot read the secret in {}: {e}", file.display()))
    })?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.len() < 8 {
        let what = format!("the secret in {} is shorter than 8 bytes", file.display());
        return Err(Failure::Usage(format!(
            "{what}; try: openssl rand -hex 16 > {}",
            file.display()
        )));
    }
    Ok(Some(text.to_owned()))
}

pub(crate) fn run(args: &PeerArgs) -> Result<(), Failure> {
    let secret = secret(&args.secret)?;
    if secret.is_none() && !args.listen.ip().is_loopback() {
        console::say(
            "warning: anyone who reaches this address can have this host send and receive probe \
             traffic; require a secret with --secret-file",
        );
    }
    let options =
        PeerOptions { listen: args.listen, secret, version: env!("CARGO_PKG_VERSION").to_owned() };
    serve(&options, stop::flag_ref(), &|line| console::say(line)).map_err(|e| Failure::of(&e))
}
