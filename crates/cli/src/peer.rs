//! `wirepath peer`: the far end of `probe` and `prove`.

use std::net::SocketAddr;

use clap::Args;
use probe::peer::{DEFAULT_PORT, PeerOptions, serve};

use crate::exit::Failure;
use crate::shared_args::SecretArgs;
use crate::{console, signals};

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// Address to listen on
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

pub(crate) fn run(args: &PeerArgs) -> Result<(), Failure> {
    let secret = args.secret.read()?;
    if secret.is_none() && !args.listen.ip().is_loopback() {
        console::say(
            "warning: any host that reaches this address can make this one send and receive probe \
             traffic; require a secret with --secret-file",
        );
    }
    let options =
        PeerOptions { listen: args.listen, secret, version: env!("CARGO_PKG_VERSION").to_owned() };
    serve(&options, signals::stop_flag(), &|line| console::say(line))
        .map_err(|e| Failure::from_chain(&e))
}
