//! Arguments of experiments between two hosts.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use lab::FarEnd;
use model::TwoHosts;
use remote::Failure;
use runner::find_load;

use crate::lookup;
use crate::shared_args::{SecretArgs, parse_ip};

/// The far end of an experiment between two hosts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Between two hosts")]
#[group(skip)]
pub(crate) struct FarEndArgs {
    /// Far end: `ssh:[USER@]HOST[:PORT]`, `netns:NAME` of this host, or with path probe
    /// `peer:HOST[:PORT]` of a `wirepath peer`
    #[arg(long, value_name = "KIND:HOST", group = "host")]
    pub(crate) far: Option<FarEnd>,
    /// The same as --far peer:HOST
    #[arg(long, value_name = "HOST", hide = true, group = "host")]
    pub(crate) peer: Option<String>,
    /// Address of the far end for the load; default: the route's own
    #[arg(long, value_name = "IP", requires = "host", value_parser = parse_ip)]
    pub(crate) far_address: Option<IpAddr>,
    /// Direction of a load that goes one way, as this host sees it; default: send, with `tune prove` receive
    #[arg(long, value_enum, requires = "host")]
    pub(crate) direction: Option<Direction>,
    /// Interface of this host; default: the route's own
    #[arg(short = 'i', long, value_name = "IF", requires = "host")]
    pub(crate) interface: Option<String>,
    /// Receive queue of this host; default: all of them, with a socket each under bypass
    #[arg(long, value_name = "N", requires = "host")]
    pub(crate) queue: Option<u32>,
    /// CPU to which `pin` moves this end; default: the path's own choice
    #[arg(long, value_name = "CPU", requires = "host")]
    pub(crate) app_cpu: Option<usize>,
    /// CPU to which `pin` moves the far end; default: its first
    #[arg(long, value_name = "CPU", requires = "host")]
    pub(crate) far_cpu: Option<usize>,
    /// Option of the ssh client as in its configuration file, e.g. IdentityFile=FILE; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "host")]
    pub(crate) ssh_option: Vec<String>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

/// Direction of a load that goes one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// This host sends
    Send,
    /// This host receives
    Receive,
}

impl FarEndArgs {
    pub(crate) fn end(&self) -> Option<FarEnd> {
        self.far.clone().or_else(|| self.peer.clone().map(FarEnd::Peer))
    }

    /// Settings of both ends for a load; `None` for a lab. Errors: the load has no direction to choose.
    ///
    /// - `load`: `None` for the path's first.
    pub(crate) fn of_load(
        &self,
        path: &str,
        load: Option<&str>,
    ) -> Result<Option<TwoHosts>, Failure> {
        if self.direction.is_some() {
            let kind = find_load(lookup::find_path(path)?.as_ref(), load)?;
            if kind.name != "flood" {
                return Err(Failure::Usage(format!(
                    "load {} has no direction to choose: remove --direction, which is for load flood of path probe",
                    kind.name
                )));
            }
        }
        self.read()
    }

    /// Settings of both ends; `None` for a lab.
    pub(crate) fn read(&self) -> Result<Option<TwoHosts>, Failure> {
        let Some(end) = self.end() else { return Ok(None) };
        if self.secret.secret_file.is_some() && !matches!(end, FarEnd::Peer(_)) {
            return Err(Failure::Usage(format!(
                "{end} gets a secret of its own: remove --secret-file, which is for --far peer:HOST"
            )));
        }
        let given = self.direction.map(|direction| match direction {
            Direction::Send => model::Direction::Send,
            Direction::Receive => model::Direction::Receive,
        });
        Ok(Some(TwoHosts {
            end: end.to_string(),
            secret: self.secret.read()?,
            address: self.far_address,
            ssh_options: self.ssh_option.clone(),
            direction: given.unwrap_or_default(),
            ifname: self.interface.clone(),
            queue: self.queue,
            near_cpu: self.app_cpu,
            far_cpu: self.far_cpu,
        }))
    }
}
