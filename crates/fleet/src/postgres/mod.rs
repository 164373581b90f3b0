//! Archive on PostgreSQL (15 or later).

mod archive;
mod batch;
mod ledger;
mod tls;

use std::time::Duration;

use postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::book::BookError;
use crate::nats::MessageRefusal;
pub use ledger::PostgresLedger;

/// Tables, as `fleet init` writes them.
pub const SCHEMA: &str = include_str!("schema.sql");

/// Length of a stored result after it is inflated, bytes.
const BODY_MAX: u64 = 64 * 1024 * 1024;

/// Time after which a connection that answers no more is given up.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Limits of the server; options of the address come after them.
const LIMITS: &str =
    "-c lock_timeout=30s -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s";

/// Advisory lock of the one coordinator.
const COORDINATOR: i64 = 0x7769_7265;

/// The book of jobs in a database that several processes use at once.
pub struct PostgresArchive {
    client: Client,
    config: Config,
    tls: Option<MakeRustlsConnect>,
    server: String,
    coordinates: bool,
}

impl std::fmt::Debug for PostgresArchive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresArchive").field("server", &self.server).finish_non_exhaustive()
    }
}

impl PostgresArchive {
    /// Connects; the tables must be there.
    ///
    /// - `address`: connection string of libpq, such as `host=db1 user=wirepath dbname=wirepath`. The password may
    ///   be in the environment as `PGPASSWORD`.
    /// - `ca`: certificates of the authority (PEM) that signed the server's; needed unless the server is reached by a
    ///   socket or a loopback address.
    pub fn open(address: &str, ca: Option<&str>) -> Result<Self, BookError> {
        let (mut config, server, tls) = read_address(address, ca)?;
        if let Ok(password) = std::env::var("PGPASSWORD") {
            config.password(password);
        }
        config.connect_timeout(Duration::from_secs(10));
        // A connection that answers no more, and a lock of a process that was stopped, end in an error.
        config.tcp_user_timeout(SERVER_TIMEOUT).keepalives_idle(SERVER_TIMEOUT);
        let options = format!("{LIMITS} {}", config.get_options().unwrap_or_default());
        config.options(&options);
        config.application_name("wirepath");
        let client = connect(&config, tls.as_ref(), &server)?;
        Ok(PostgresArchive { client, config, tls, server, coordinates: false })
    }

    /// Creates the tables that are missing. Needs the owner of the database.
    pub fn create_tables(&mut self) -> Result<(), BookError> {
        self.run("creating its tables", |client| client.batch_execute(SCHEMA))
    }

    /// Becomes the only coordinator; false if there is another one. A connection that is made anew is so again, or
    /// fails.
    pub fn lock_coordinator(&mut self) -> Result<bool, BookError> {
        self.coordinates = self.run("locking it", lock)?;
        Ok(self.coordinates)
    }

    /// True while another connection is the coordinator.
    pub fn has_coordinator(&mut self) -> Result<bool, BookError> {
        self.run("looking for a coordinator", |client| {
            let sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
                       AND classid = 0 AND objid = $1::bigint::oid
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
            client.query_one(sql, &[&COORDINATOR])?.try_get(0)
        })
    }

    /// Keeps messages that were refused.
    pub fn keep_refused(&mut self, refusals: &[MessageRefusal]) -> Result<(), BookError> {
        self.run("keeping what was refused", |client| {
            let mut transaction = client.transaction()?;
            for of in refusals {
                let sql = "INSERT INTO refused (host, why, body) VALUES ($1, $2, $3)";
                // No text of PostgreSQL has a zero byte.
                let why = of.why.replace('\0', "");
                transaction.execute(sql, &[&of.host, &why, &of.payload])?;
            }
            transaction.commit()
        })
    }

    /// Runs an operation. A connection that has ended is made anew first; an operation that failed is not repeated,
    /// as its transaction may have been committed.
    fn run<T>(
        &mut self,
        doing: &'static str,
        operation: impl FnOnce(&mut Client) -> Result<T, postgres::Error>,
    ) -> Result<T, BookError> {
        let server = &self.server;
        if self.client.is_closed() {
            let mut client = connect(&self.config, self.tls.as_ref(), server)?;
            // The server keeps the lock of the old connection until it has noticed its end.
            if self.coordinates && !lock(&mut client).map_err(failed(server, "locking it again"))? {
                return Err(BookError::Coordinated { server: server.clone() });
            }
            self.client = client;
        }
        operation(&mut self.client).map_err(failed(server, doing))
    }

    fn strange(&self, what: &'static str, why: impl ToString) -> BookError {
        BookError::Strange { place: self.server.clone(), what, why: why.to_string() }
    }
}

/// Errors: the address cannot be read, or its connection would not be encrypted.
pub fn check_address(address: &str, ca: Option<&str>) -> Result<(), BookError> {
    read_address(address, ca).map(drop)
}

fn read_address(
    address: &str,
    ca: Option<&str>,
) -> Result<(Config, String, Option<MakeRustlsConnect>), BookError> {
    let mut config: Config =
        address.parse().map_err(failed("the address given", "reading its address"))?;
    let server = format!("{:?}", config.get_hosts());
    let tls = tls::encryption(&mut config, &server, ca)?;
    Ok((config, server, tls))
}

/// Takes the lock of the one coordinator; false if another connection has it.
fn lock(client: &mut Client) -> Result<bool, postgres::Error> {
    client.query_one("SELECT pg_try_advisory_lock($1)", &[&COORDINATOR])?.try_get(0)
}

fn connect(
    config: &Config,
    tls: Option<&MakeRustlsConnect>,
    server: &str,
) -> Result<Client, BookError> {
    let connected = match tls {
        Some(tls) => config.connect(tls.clone()),
        None => config.connect(NoTls),
    };
    connected.map_err(failed(server, "connecting"))
}

/// The error of an operation on a server.
fn failed(server: &str, doing: &'static str) -> impl FnOnce(postgres::Error) -> BookError {
    move |source| BookError::Database { server: server.to_owned(), doing, source }
}
