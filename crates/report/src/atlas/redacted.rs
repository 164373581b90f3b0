//! Outcomes without names: only what is on a list is kept.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    ArmKind, ArmOutcome, CarryOver, Machine, MetricOutcome, Outcome, Phrases, Support, Trust,
    WireSpec,
};

use crate::hash::{SHORT_HASH_LEN, short_hash};

/// Words that Wirepath itself gave a meaning: no user's text is among them.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// Names of paths.
    pub paths: BTreeSet<String>,
    /// Kinds of load.
    pub loads: BTreeSet<String>,
    /// Names of switches and knobs.
    pub switches: BTreeSet<String>,
}

/// Name of a path that is not known.
const OTHER_PATH: &str = "other";
/// Parameters of a load whose values are numbers.
const LOAD: [&str; 6] = ["ip", "rate_pps", "resolve", "size_bytes", "time_ms", "trial_ms"];
/// Labs in words, as paths describe them in place of a card.
const LABS: [&str; 3] = ["veth pair", "two veth pairs", "simulated"];
/// Parts of a kernel's release that are kept, beside numbers: flavours of distributions.
const FLAVOURS: [&str; 18] = [
    "aarch64",
    "amd64",
    "arch",
    "arm64",
    "aws",
    "azure",
    "cloud",
    "default",
    "gcp",
    "generic",
    "lowlatency",
    "oracle",
    "pve",
    "raspi",
    "rpi",
    "rt",
    "virtual",
    "x86_64",
];
/// Units of metrics, and governors of the kernel.
const UNITS: [&str; 13] = [
    "ns", "us", "ms", "s", "bps", "pps", "rps", "qps", "tps", "share", "count", "bytes", "percent",
];
const GOVERNORS: [&str; 6] =
    ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];
/// Length of a machine's hash.
const MACHINE_ID_LEN: usize = 12;
const TEXT_CHARS_MAX: usize = 80;
const GIB: u64 = 1 << 30;

/// Returns an outcome without names of hosts, users, addresses, files, programs and interfaces, and without any text of a
/// user. What it is measured on stays: CPU model, kernel, driver and firmware, hypervisor.
///
/// Redacting twice changes nothing more, by which a contribution is checked.
pub fn redacted(outcome: &Outcome, words: &Vocabulary) -> Outcome {
    let judged: Vec<String> =
        outcome.judged.iter().filter(|name| is_metric_name(name)).cloned().collect();
    // Every field is named: a new one is left out until it is decided here.
    Outcome {
        schema: outcome.schema,
        id: run_id(outcome),
        name: None,
        note: None,
        started: day(&outcome.started),
        version: version(&outcome.version),
        machine: machine(&outcome.machine),
        path: if words.paths.contains(&outcome.path) {
            outcome.path.clone()
        } else {
            OTHER_PATH.to_owned()
        },
        load: load(&outcome.load, words),
        phrases: Phrases::default(),
        seed: outcome.seed,
        schedule: outcome.schedule,
        blocks: outcome.blocks,
        wall_ms: outcome.wall_ms,
        ended: outcome.ended,
        looks: outcome.looks,
        looked: Vec::new(),
        forecast: None,
        resolve: outcome.resolve,
        arms: arms(&outcome.arms, &judged, words),
        best: Vec::new(),
        floor: outcome
            .floor
            .iter()
            .filter(|(name, _)| judged.contains(name))
            .map(|(name, floor)| (name.clone(), *floor))
            .collect(),
        warnings: Vec::new(),
        trust: Trust {
            carry_over: outcome
                .trust
                .carry_over
                .iter()
                .filter_map(|of| carry_over(of, &judged))
                .collect(),
            starts: Vec::new(),
            ticks: Vec::new(),
        },
        gate: None,
        search: None,
        judged,
    }
}

fn carry_over(check: &CarryOver, judged: &[String]) -> Option<CarryOver> {
    let CarryOver { metric, after: _, blocks, ratio, p, flagged } = check.clone();
    judged.contains(&metric).then_some(CarryOver { metric, after: None, blocks, ratio, p, flagged })
}

/// `run-` and a hash; that of a redacted run stays.
fn run_id(outcome: &Outcome) -> String {
    let is_redacted = outcome.id.strip_prefix("run-").is_some_and(|hash| {
        hash.len() == SHORT_HASH_LEN
            && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    });
    if is_redacted {
        return outcome.id.clone();
    }
    let text = format!("{}\n{}\n{}", outcome.id, outcome.started, outcome.machine.id);
    format!("run-{}", short_hash(&text))
}

/// The day of a time, as a time.
fn day(started: &str) -> String {
    let day: String =
        started.chars().take(10).filter(|c| c.is_ascii_digit() || *c == '-').collect();
    format!("{day}T00:00:00Z")
}

/// `0.1.0` of a version with or without a suffix.
fn version(version: &str) -> String {
    version.chars().take_while(|c| c.is_ascii_digit() || *c == '.').take(TEXT_CHARS_MAX).collect()
}

/// The word if it is a known one, else nothing.
fn known_word(word: &str, known: &[&str]) -> String {
    known.iter().find(|known| **known == word).map_or_else(String::new, |word| (*word).to_owned())
}

fn plain(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    text.chars().filter(|c| is_kept(*c)).take(TEXT_CHARS_MAX).collect()
}

/// ASCII text without slash, at sign and colon, which files, users and addresses have.
fn fact(text: &str) -> String {
    plain(text, |c| c.is_ascii_alphanumeric() || " ()-_.,+#".contains(c)).trim().to_owned()
}

fn machine(machine: &Machine) -> Machine {
    Machine {
        id: machine_id(&machine.id),
        kernel: kernel(&machine.kernel),
        cpu: fact(&machine.cpu),
        cpus: machine.cpus,
        memory_bytes: machine.memory_bytes.div_ceil(GIB).saturating_mul(GIB),
        hypervisor: machine.hypervisor.as_deref().map(fact),
        governor: machine.governor.as_deref().map(|name| known_word(name, &GOVERNORS)),
        nic: nic(&machine.nic),
        load_x100: machine.load_x100,
        notes: BTreeMap::new(),
        far: machine.far.as_deref().map(|far| Box::new(self::machine(far))),
    }
}

/// A hash that Wirepath made of the machine's description; nothing in place of another text.
fn machine_id(id: &str) -> String {
    let is_hash = id.len() == MACHINE_ID_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { id.to_owned() } else { String::new() }
}

/// The release with its numbers and flavour; what a builder appended, often a host's name, is left out.
fn kernel(kernel: &str) -> String {
    let release = kernel.split_whitespace().next().unwrap_or_default();
    let known = release.split(['-', '+', '_']).filter(|part| is_version_part(part));
    plain(&known.collect::<Vec<_>>().join("-"), |c| c.is_ascii_alphanumeric() || ".-".contains(c))
}

fn is_version_part(part: &str) -> bool {
    // `el9`, `fc42`, `rc3` are versions too.
    let number = ["el", "fc", "rc", "deb"].iter().find_map(|word| part.strip_prefix(word));
    is_number(number.unwrap_or(part)) || FLAVOURS.contains(&part)
}

/// `(ixgbe, firmware 0x8000)` of `eth1 (ixgbe, firmware 0x8000, 8 queues, MTU 1500)`; empty without a driver.
fn nic(nic: &str) -> String {
    let inner = nic.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let driver = match inner {
        Some((inner, _)) => inner.split(", ").next().unwrap_or_default(),
        None => LABS.into_iter().find(|lab| nic.starts_with(lab)).unwrap_or_default(),
    };
    let is_driver =
        driver.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_- ".contains(c))
            && !driver.is_empty()
            && !driver.contains("queue");
    if !is_driver {
        return String::new();
    }
    let firmware =
        inner.and_then(|(inner, _)| inner.split(", ").find(|p| p.starts_with("firmware ")));
    match firmware.map(fact).filter(|_| !LABS.contains(&driver)) {
        Some(firmware) => format!("({driver}, {firmware})"),
        None => format!("({driver})"),
    }
}

/// Parameters whose values are numbers, or words of Wirepath.
fn load(load: &BTreeMap<String, String>, words: &Vocabulary) -> BTreeMap<String, String> {
    let known = load.iter().filter(|(name, value)| match name.as_str() {
        "kind" => words.loads.contains(*value),
        "direction" => value.as_str() == "receive",
        "settle" => value.as_str() == "yes",
        "wire" => value.parse::<WireSpec>().is_ok_and(|wire| wire.to_string() == **value),
        name => LOAD.contains(&name) && is_number(value.strip_suffix('%').unwrap_or(value)),
    });
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= TEXT_CHARS_MAX
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn is_metric_name(name: &str) -> bool {
    name.len() <= TEXT_CHARS_MAX
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Baselines and variants. A variant has the name of its switches, or a number if they are not Wirepath's own; peers, which
/// are programs, are left out.
fn arms(arms: &[ArmOutcome], judged: &[String], words: &Vocabulary) -> Vec<ArmOutcome> {
    let mut number = 0;
    let mut kept = Vec::new();
    for arm in arms {
        let is_known = !arm.switches.is_empty()
            && arm.switches.iter().all(|switch| words.switches.contains(switch));
        let name = match arm.kind {
            ArmKind::Baseline => "baseline".to_owned(),
            ArmKind::Control => "baseline again".to_owned(),
            ArmKind::Peer => continue,
            ArmKind::Variant if is_known => arm.switches.join("+"),
            ArmKind::Variant => {
                number += 1;
                format!("variant {number}")
            }
        };
        let switches = if is_known { arm.switches.clone() } else { Vec::new() };
        kept.push(ArmOutcome {
            name,
            kind: arm.kind,
            switches,
            support: support(&arm.support),
            trials: arm.trials,
            metrics: arm
                .metrics
                .iter()
                .filter(|(name, _)| judged.contains(name))
                .map(|(name, of)| (name.clone(), metric(of)))
                .collect(),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            samples: None,
            reliability: arm.reliability.clone(),
            failures: Vec::new(),
        });
    }
    kept
}

/// The same without its reason.
fn support(support: &Support) -> Support {
    match support {
        Support::Yes => Support::Yes,
        Support::Unsupported { .. } => {
            Support::Unsupported { what: String::new(), needs: String::new() }
        }
        Support::Refused { .. } => Support::Refused { why: String::new() },
    }
}

fn metric(metric: &MetricOutcome) -> MetricOutcome {
    MetricOutcome {
        unit: known_word(&metric.unit, &UNITS),
        better: metric.better,
        median: metric.median,
        ratio: metric.ratio,
        low: metric.low,
        high: metric.high,
        difference: metric.difference,
        p: metric.p,
        p_adjusted: metric.p_adjusted,
        finds: metric.finds,
        tail: None,
        verdict: metric.verdict,
        why: None,
        trials: metric.trials.clone(),
    }
}
