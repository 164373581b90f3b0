//! `wirepath serve`: the history as web pages, on loopback only.

mod routes;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;
use house::context::Context;
use house::http::{HttpRequest, Server};
use house::{console, privileges, signals};
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use sys::capability::Capability;

use crate::results;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port on 127.0.0.1; 0 takes any that is free
    #[arg(long, default_value_t = 7118)]
    pub(crate) port: u16,
}

/// Document of `serve --json`, in one line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServeDocument {
    url: String,
}

pub(crate) fn run(context: &Context, args: &ServeArgs) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let server = Server::bind(address).map_err(|e: std::io::Error| {
        Failure::failed(format!("cannot serve on {address}: {e}; choose another --port"))
    })?;
    let database = results::database(context).file()?;
    // An unreadable file is an error now, not on every page.
    match report::store::SqliteStore::open_reading(&database) {
        Ok(_) | Err(report::store::StoreError::Empty) => {}
        Err(e) => return Err(e.into()),
    }
    signals::stop_on_hangup()?;
    privileges::keep_only(kept_to_read(&database)).map_err(Failure::failed)?;
    let url = format!("http://{}/", server.address());
    if context.json {
        console::text(&serde_json::to_string(&ServeDocument { url })?)?
    } else {
        console::text(&format!("{url}\nuntil Ctrl-C"))?
    }
    let confine = privileges::confine_stored_pages;
    server.serve(signals::stop_requested, confine, move |request: &HttpRequest| {
        routes::answer(request, &database)
    });
    Ok(())
}

/// Capabilities kept to read the database: one of another user needs `CAP_DAC_OVERRIDE`, because
/// SQLite writes files beside it.
fn kept_to_read(database: &Path) -> &'static [Capability] {
    // A process belongs to its effective user.
    let [owner, user] = [database, Path::new("/proc/self")]
        .map(|path| std::fs::metadata(path).map(|metadata| metadata.uid()).ok());
    let is_own = owner.is_none() || owner == user;
    if is_own { &[] } else { &[Capability::DacOverride] }
}
