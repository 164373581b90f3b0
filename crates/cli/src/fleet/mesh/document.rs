//! Document and page of a mesh.

use std::collections::BTreeMap;

use fleet::mesh::{MeshTable, Sign, SuspectPlace, polish};
use house::context::DOCUMENT;
use model::statistics::median;
use report::page::{MeshCell, MeshPage};
use report::screen::Tone;
use report::units;
use schemars::JsonSchema;
use serde::Serialize;

use super::Measured;

/// Document of `fleet mesh --json`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Document")]
pub(crate) struct MeshDocument {
    schema: u32,
    load: String,
    /// Round trips of one measurement.
    count: u32,
    seed: u64,
    /// In the order given.
    pub(super) hosts: Vec<HostDocument>,
    pub(super) pairs: Vec<PairDocument>,
    /// Typical median round trip of all pairs, nanoseconds; `None` without any.
    rtt_ns: Option<f64>,
    /// Hosts and links that stood out in every repeat.
    pub(super) suspects: Vec<SuspectDocument>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct HostDocument {
    pub(super) host: String,
    /// Its pairs take so many times as long as the typical one; median over the repeats.
    pub(super) ratio: f64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PairDocument {
    pub(super) one: String,
    pub(super) other: String,
    /// Median round trip of each repeat, nanoseconds; `null` where there is none.
    pub(super) rtt_ns: Vec<Option<f64>>,
    sent_count: u64,
    lost_count: u64,
    /// Reasons of measurements that failed.
    failures: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SuspectDocument {
    /// The host, or one end of the link.
    pub(super) host: String,
    /// The other end of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) other: Option<String>,
    pub(super) sign: Sign,
    /// True if it stood out again, measured between other pairs: only then it is named.
    pub(super) named: bool,
}

impl MeshDocument {
    pub(super) fn new(mesh: &Measured) -> Self {
        let fits: Vec<_> = mesh.repeats.iter().map(polish).collect();
        let hosts = mesh.hosts.iter().enumerate().map(|(at, host)| {
            let logs: Vec<f64> = fits.iter().map(|fit| fit.hosts[at]).collect();
            HostDocument { host: host.clone(), ratio: median(&logs).unwrap_or(0.0).exp() }
        });
        let levels: Vec<f64> =
            fits.iter().filter(|fit| !fit.rests.is_empty()).map(|fit| fit.level).collect();
        MeshDocument {
            schema: DOCUMENT,
            load: mesh.load.clone(),
            count: mesh.count,
            seed: mesh.seed,
            hosts: hosts.collect(),
            pairs: pairs(&mesh.hosts, &mesh.repeats),
            rtt_ns: median(&levels).map(f64::exp),
            suspects: mesh
                .suspects
                .iter()
                .map(|(of, named)| suspect(mesh, of.place, of.sign, *named))
                .collect(),
        }
    }

    /// Reason of a failure if no pair could be measured.
    pub(super) fn failure(&self) -> Option<&str> {
        let has_none = self.pairs.iter().all(|pair| pair.rtt_ns.iter().all(Option::is_none));
        let why = self.pairs.iter().find_map(|pair| pair.failures.first());
        why.filter(|_| has_none).map(String::as_str)
    }

    /// Hosts and links that stood out again, each as a sentence.
    pub(super) fn named(&self) -> Vec<String> {
        self.named_places().into_values().collect()
    }

    /// The same by host or link.
    pub(super) fn named_places(&self) -> BTreeMap<String, String> {
        let named = self.suspects.iter().filter(|suspect| suspect.named);
        named.map(|suspect| (suspect.place(), suspect.sentence())).collect()
    }

    pub(super) fn page(&self) -> MeshPage {
        let count = self.hosts.len();
        let mut cells = vec![vec![None; count]; count];
        for pair in &self.pairs {
            if let (Some(a), Some(b)) = (self.place(&pair.one), self.place(&pair.other)) {
                cells[a][b] = Some(self.cell(pair));
                cells[b][a] = Some(self.cell(pair));
            }
        }
        let hosts = units::plural(count as u32, "host");
        let rounds = self.pairs.iter().map(|pair| pair.rtt_ns.len()).max();
        MeshPage {
            subject: format!("Mesh of {hosts}: {}", self.load),
            caption: format!(
                "Median round trip in µs, median of {} of {} round trips each; part: a host's pairs over the typical one",
                units::plural(rounds.unwrap_or(0) as u32, "measurement"),
                self.count
            ),
            hosts: self.hosts.iter().map(|host| host.host.clone()).collect(),
            cells,
            parts: self.hosts.iter().map(|host| units::ratio(host.ratio)).collect(),
            findings: self.findings(),
            remarks: self.remarks(),
        }
    }

    /// Place of a host in the table.
    fn place(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.host == name)
    }

    fn remarks(&self) -> Vec<String> {
        let rule = "A host or link is named if it stands out of the rest in every repeat, by five deviations, 10 % and its change between repeats, \
                    and does so again between other pairs.";
        let shared = "Pairs with a host of this machine share its CPUs and memory: they are measured one after the other.";
        let mut names = self.hosts.iter().map(|host| host.host.as_str());
        let has_local = names.any(|name| name == "this" || name.starts_with("netns:"));
        [Some(rule), has_local.then_some(shared)].into_iter().flatten().map(str::to_owned).collect()
    }

    fn findings(&self) -> Vec<(Tone, String)> {
        let named = self.named().into_iter().map(|text| (Tone::Bad, text));
        let others = self.suspects.iter().filter(|suspect| !suspect.named).map(|suspect| {
            (Tone::Doubt, format!("{}: not confirmed between other pairs", suspect.sentence()))
        });
        let found: Vec<(Tone, String)> = named.chain(others).collect();
        match (found.is_empty(), self.hosts.len()) {
            (true, ..4) => {
                let text = "fewer than four hosts: a host and its links cannot be told apart";
                vec![(Tone::Plain, text.into())]
            }
            (true, _) => vec![(Tone::Good, "no host and no link stands out".into())],
            _ => found,
        }
    }

    fn cell(&self, pair: &PairDocument) -> MeshCell {
        let measured: Vec<f64> = pair.rtt_ns.iter().flatten().copied().collect();
        let figure = median(&measured).map(|ns| units::digits(ns / 1000.0));
        let lost = (pair.lost_count > 0).then(|| format!(" −{}", pair.lost_count));
        let text = figure.unwrap_or_else(|| "failed".into()) + &lost.unwrap_or_default();
        let tone = if self.suspects.iter().any(|suspect| suspect.named && suspect.touches(pair)) {
            Tone::Bad
        } else if pair.lost_count > 0 || !pair.failures.is_empty() {
            Tone::Doubt
        } else {
            Tone::Plain
        };
        MeshCell { text, tone }
    }
}

impl SuspectDocument {
    fn place(&self) -> String {
        match &self.other {
            None => format!("host {}", self.host),
            Some(other) => format!("link {} to {other}", self.host),
        }
    }

    fn sentence(&self) -> String {
        let place = self.place();
        match self.sign {
            Sign::Slow(ratio) => {
                format!("{place} is slow: round trips of {} the rest", units::ratio(ratio))
            }
            Sign::Loses(share) => {
                format!("{place} loses {} of its datagrams", units::percent(share))
            }
        }
    }

    fn touches(&self, pair: &PairDocument) -> bool {
        let ends = [&pair.one, &pair.other];
        ends.contains(&&self.host) && self.other.as_ref().is_none_or(|other| ends.contains(&other))
    }
}

fn suspect(mesh: &Measured, place: SuspectPlace, sign: Sign, named: bool) -> SuspectDocument {
    let (host, other) = match place {
        SuspectPlace::Host(host) => (host, None),
        SuspectPlace::Link(a, b) => (a, Some(b)),
    };
    let (host, other) = (mesh.hosts[host].clone(), other.map(|other| mesh.hosts[other].clone()));
    SuspectDocument { host, other, sign, named }
}

fn pairs(hosts: &[String], repeats: &[MeshTable]) -> Vec<PairDocument> {
    let mut found: BTreeMap<(usize, usize), PairDocument> = BTreeMap::new();
    for (&(a, b), cell) in repeats.iter().flat_map(|table| &table.cells) {
        let pair = found.entry((a, b)).or_insert_with(|| PairDocument {
            one: hosts[a].clone(),
            other: hosts[b].clone(),
            rtt_ns: Vec::new(),
            sent_count: 0,
            lost_count: 0,
            failures: Vec::new(),
        });
        pair.rtt_ns.push(cell.rtt_ns);
        pair.sent_count += cell.sent;
        pair.lost_count += cell.lost;
        pair.failures.extend(cell.why.clone());
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use fleet::mesh::PairCell;

    use super::*;

    fn measured() -> Measured {
        let mut table = MeshTable::new(4);
        for a in 0..4 {
            for b in a + 1..4 {
                let rtt_ns = Some(if a == 0 { 50_000.0 } else { 10_000.0 });
                table.record((a, b), PairCell { rtt_ns, sent: 100, ..PairCell::default() });
            }
        }
        let failed =
            PairCell { why: Some("no answer".into()), sent: 100, lost: 100, ..PairCell::default() };
        table.record((2, 3), failed);
        let hosts = ["a", "b", "c", "d"].map(|name| format!("netns:{name}")).to_vec();
        let repeats = vec![table.clone(), table];
        Measured { hosts, load: "ping".into(), count: 100, seed: 1, repeats, suspects: Vec::new() }
    }

    #[test]
    fn page_has_every_pair_and_its_failures() {
        let document = MeshDocument::new(&measured());
        let page = document.page();
        assert_eq!(page.cells[0][0], None);
        assert_eq!(
            page.cells[0][1].as_ref().unwrap().text,
            page.cells[1][0].as_ref().unwrap().text
        );
        assert!(page.cells[3][2].as_ref().unwrap().text.contains("failed"), "{page:?}");
        assert_eq!(page.findings, [(Tone::Good, "no host and no link stands out".into())]);
        assert!(document.named().is_empty());
        assert_eq!(document.pairs.len(), 6);
        assert!(page.remarks.iter().any(|text| text.contains("one after the other")), "{page:?}");
        let hosts = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let over_agents = MeshDocument::new(&Measured { hosts, ..measured() }).page();
        assert!(!over_agents.remarks.iter().any(|text| text.contains("one after the other")));
    }

    #[test]
    fn named_host_and_link_are_sentences() {
        let mut mesh = measured();
        let tables: Vec<MeshTable> = (0..2)
            .map(|_| {
                let mut table = MeshTable::new(6);
                for a in 0..6 {
                    for b in a + 1..6 {
                        let rtt =
                            if b == 4 || a == 4 { 90_000.0 } else { 10_000.0 + (a * b) as f64 };
                        table.record(
                            (a, b),
                            PairCell { rtt_ns: Some(rtt), sent: 100, ..PairCell::default() },
                        );
                    }
                }
                table
            })
            .collect();
        mesh.hosts.extend(["netns:e".to_owned(), "netns:f".to_owned()]);
        mesh.suspects =
            fleet::mesh::suspects(&tables).into_iter().map(|suspect| (suspect, true)).collect();
        mesh.repeats = tables;
        let document = MeshDocument::new(&mesh);
        assert_eq!(document.named().len(), 1, "{:?}", document.named());
        assert!(
            document.named()[0].starts_with("host netns:e is slow: "),
            "{:?}",
            document.named()
        );
        let page = document.page();
        assert_eq!(page.cells[4][0].as_ref().unwrap().tone, Tone::Bad);
        assert_eq!(page.cells[1][0].as_ref().unwrap().tone, Tone::Plain);
        let html = report::html::mesh_page(&page);
        assert!(html.contains("host netns:e is slow") && html.contains("<table"), "{html}");
    }
}
