//! Encrypted connections to real servers, whose certificates are checked.

use std::collections::BTreeMap;

use testkit::servers::{Authority, Broker, Database};
use wirepath_fleet::enrol::{Fleet, configuration};
use wirepath_fleet::keys::Seeds;
use wirepath_fleet::nats::NatsExchange;
use wirepath_fleet::postgres::PostgresArchive;

#[test]
fn database_is_reached_encrypted_and_only_if_the_authority_signed_its_certificate() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    let Some(database) = Database::start_encrypted(&authority) else { return };
    let address = format!("host={} user=postgres dbname=postgres", authority.address());
    let mut archive = PostgresArchive::open(&address, Some(&authority.ca())).unwrap();
    archive.create_tables().unwrap();
    let own = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
               WHERE ssl AND application_name = 'wirepath'";
    assert_eq!(database.sql("postgres", own), "1");
    let text = |opened: Result<PostgresArchive, _>| {
        let error: wirepath_fleet::book::BookError = opened.map(drop).expect_err("refused");
        format!("{:?}", std::error::Error::source(&error).map(|source| format!("{source:?}")))
    };
    let strange = text(PostgresArchive::open(&address, Some(&other.ca())));
    assert!(strange.contains("UnknownIssuer") || strange.contains("BadSignature"), "{strange}");
    let plain = text(PostgresArchive::open(&address, None));
    assert!(plain.contains("pg_hba"), "{plain}");
    // A name that is not in the certificate.
    let named = address.replace(authority.address(), "localhost");
    let named = format!("{named} hostaddr={}", authority.address());
    let misnamed = text(PostgresArchive::open(&named, Some(&authority.ca())));
    assert!(misnamed.contains("NotValidForName"), "{misnamed}");
}

#[test]
fn broker_is_reached_encrypted_and_only_if_the_authority_signed_its_certificate() {
    let (Some(authority), Some(other)) = (Authority::new(), Authority::new()) else { return };
    let seeds = Seeds::generate().unwrap();
    let mut fleet = Fleet::new(seeds.public().unwrap(), BTreeMap::new());
    let (certificate, key) = authority.server();
    let files = [certificate, key].map(|file| file.display().to_string());
    let config = configuration(&fleet, Some((&files[0], &files[1])));
    let Some(broker) = Broker::start(&config) else { return };
    fleet.broker = broker.url();
    let open = |ca: Option<&Authority>| {
        let address = fleet.address(&seeds, ca.map(Authority::file_of_ca));
        NatsExchange::core(&address, fleet.keyring(&seeds).unwrap())
    };
    open(Some(&authority)).unwrap();
    open(Some(&other)).expect_err("another authority");
    open(None).expect_err("no authority");
}
