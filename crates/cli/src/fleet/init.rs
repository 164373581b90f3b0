//! `wirepath fleet init`: keys, enrolments, and the files of both servers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::enrol::{Enrolment, Fleet, configuration, read_hosts};
use fleet::keys::Seeds;
use fleet::postgres::{SCHEMA, check_address};
use house::console;
use house::context::Context;
use remote::Failure;

use super::keys::read_secret;

/// File of the coordinator's secret.
pub(super) const COORDINATOR: &str = "coordinator.json";

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder for the files; kept secret. Run again with a changed list of hosts, it keeps all keys
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// List of hosts: a line `NAME`, or `NAME LOGIN-KEY SIGNING-KEY` for a host that made its own keys (`fleet keys`);
    /// `address=IP` at its end is where others ping it (`fleet mesh`), `group=NAME` the rack or class that it shares with
    /// others (`fleet prove`)
    #[arg(long, value_name = "FILE")]
    hosts: PathBuf,
    /// Address of the broker, as agents reach it
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    broker: String,
    /// Connection string of the database for the coordinator and collectors; no password (PGPASSWORD)
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "host=/run/postgresql user=wirepath dbname=wirepath"
    )]
    database: String,
    /// Certificate of the authority (PEM) that signed the database's; needed for a database on another host, to which
    /// connections are always encrypted
    #[arg(long, value_name = "FILE")]
    database_ca: Option<PathBuf>,
    /// Certificate of the authority (PEM) that signed the broker's; connections are encrypted
    #[arg(long, value_name = "FILE", requires_all = ["cert", "cert_key"])]
    ca: Option<PathBuf>,
    /// The broker's certificate, as a path on its host
    #[arg(long, value_name = "FILE", requires = "ca")]
    cert: Option<String>,
    /// Key of the broker's certificate, as a path on its host
    #[arg(long, value_name = "FILE", requires = "ca")]
    cert_key: Option<String>,
}

/// Certificates of the authorities that signed those of both servers, as PEM.
struct Authorities {
    broker: Option<String>,
    database: Option<String>,
}

impl Authorities {
    /// Errors: a file is no certificate, or the database is on another host and has none.
    fn read(args: &InitArgs) -> Result<Self, Failure> {
        let broker = args.ca.as_deref().map(read_ca).transpose()?;
        let database = args.database_ca.as_deref().map(read_ca).transpose()?;
        check_address(&args.database, database.as_deref()).map_err(Failure::usage)?;
        Ok(Authorities { broker, database })
    }
}

pub(crate) fn run(_context: &Context, args: &InitArgs) -> Result<(), Failure> {
    make_folder(&args.dir)?;
    let listed = read_hosts(&args.hosts).map_err(Failure::usage)?;
    let authorities = Authorities::read(args)?;
    let coordinator = coordinator(&args.dir)?;
    let enrol = args.dir.join("enrol");
    make_folder(&enrol)?;
    let (mut hosts, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    let mut groups = BTreeMap::new();
    for (host, given) in listed {
        addresses.extend(given.address.map(|address| (host.clone(), address)));
        groups.extend(given.group.map(|group| (host.clone(), group)));
        let file = enrol.join(format!("{host}.wp"));
        let (keys, seeds) = match given.keys {
            Some(keys) => (keys, None),
            None => {
                let seeds = host_seeds(&file)?;
                (seeds.public()?, Some(seeds))
            }
        };
        Enrolment {
            v: 1,
            host: host.clone(),
            broker: args.broker.clone(),
            ca: authorities.broker.clone(),
            coordinator: coordinator.public()?.sign,
            seeds,
        }
        .write(&file)?;
        hosts.insert(host, keys);
    }
    let fleet = Fleet { addresses, groups, ..Fleet::new(coordinator.public()?, hosts) };
    write(args, authorities, fleet)
}

fn write(args: &InitArgs, authorities: Authorities, fleet: Fleet) -> Result<(), Failure> {
    let fleet = Fleet {
        broker: args.broker.clone(),
        database: args.database.clone(),
        ca: authorities.broker,
        database_ca: authorities.database,
        ..fleet
    };
    fleet.write(&args.dir)?;
    let certificate = args.cert.as_deref().zip(args.cert_key.as_deref());
    let folder = &args.dir;
    console::replace_file(&folder.join("nats.conf"), configuration(&fleet, certificate))?;
    console::replace_file(&folder.join("schema.sql"), SCHEMA)?;
    let revoked = revoke(folder, &fleet)?;
    let hosts = console::count(fleet.hosts.len(), "host");
    let at = folder.display();
    console::text(&format!(
        "{hosts} in {at}{revoked}\n\
         broker:   nats-server -c {at}/nats.conf -js -sd STORE     (after a change: nats-server --signal reload)\n\
         database: psql -v ON_ERROR_STOP=1 -d wirepath -f {at}/schema.sql\n\
         hosts:    {at}/enrol/NAME.wp to each host, secretly; there: wirepath fleet agent --enrol NAME.wp\n\
         here:     wirepath fleet prove --fleet {at} probe --load ping --arms spin"
    ))
}

/// Removes enrolments of hosts that are no longer listed; their keys are gone from `nats.conf` too.
fn revoke(folder: &Path, fleet: &Fleet) -> Result<String, Failure> {
    let mut revoked = Vec::new();
    for entry in fs::read_dir(folder.join("enrol"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|end| end == "wp") && !fleet.hosts.contains_key(&name) {
            fs::remove_file(&path)?;
            revoked.push(name);
        }
    }
    revoked.sort();
    Ok(if revoked.is_empty() {
        String::new()
    } else {
        format!("; revoked: {}", revoked.join(", "))
    })
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| Failure::failed(format!("cannot create {}: {e}", folder.display())))
}

/// All authorities of a distribution take a fifth of it.
const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

fn read_ca(file: &Path) -> Result<String, Failure> {
    let text = host::user_file::read_text(file, CERTIFICATES_BYTES_MAX)
        .map_err(|e| Failure::Usage(format!("cannot read {}: {e}", file.display())))?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        Ok(text)
    } else {
        Err(Failure::Usage(format!("{} holds no certificate (PEM)", file.display())))
    }
}

/// The coordinator's secret; made once.
fn coordinator(folder: &Path) -> Result<Seeds, Failure> {
    let file = folder.join(COORDINATOR);
    if file.exists() {
        return read_secret(&file, Seeds::parse);
    }
    let seeds = Seeds::generate()?;
    seeds.write(&file)?;
    Ok(seeds)
}

/// Keys of a host that did not make its own; those of an earlier call stay.
fn host_seeds(file: &Path) -> Result<Seeds, Failure> {
    let earlier = if file.exists() { read_secret(file, Enrolment::parse)?.seeds } else { None };
    Ok(earlier.map_or_else(Seeds::generate, Ok)?)
}
