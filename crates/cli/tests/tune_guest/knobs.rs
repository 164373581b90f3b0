//! Every knob of every card, set and restored.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::rig::Rig;

const CARDS: [&str; 3] = ["intel", "vmx", "vio"];
const STATE: &str = "/var/lib/wirepath/tune";

/// One line of `tune knobs`: its value, or the reason why it cannot be set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) knob: String,
    pub(crate) target: String,
    pub(crate) value: Option<String>,
    pub(crate) cannot: Option<String>,
}

pub(crate) fn rows(rig: &Rig, card: &str) -> Vec<Row> {
    let all = rig.json(&format!("wirepath tune knobs --interface {card} --json"));
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let knobs = all["knobs"].as_array().expect("a list").iter();
    let rows = knobs.flat_map(|knob| {
        knob["targets"].as_array().expect("a list").iter().map(|row| Row {
            knob: text(&knob["knob"]).expect("a name"),
            target: text(&row["target"]).expect("a place"),
            value: text(&row["value"]),
            cannot: text(&row["cannot_set"]),
        })
    });
    rows.collect()
}

/// Values by knob and target.
type Values = BTreeMap<(String, String), Option<String>>;

/// All values of all knobs of these cards and of the machine.
fn values(rig: &Rig, cards: &[&str]) -> Values {
    let rows = cards.iter().flat_map(|card| rows(rig, card));
    rows.map(|row| ((row.knob, row.target), row.value)).collect()
}

fn everything(rig: &Rig) -> Values {
    values(rig, &CARDS)
}

/// Values that differ.
fn differences(before: &Values, after: &Values) -> Vec<String> {
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let pairs = before.iter().zip(after.values());
    let differ = pairs.filter(|((_, before), after)| before != after);
    differ.map(|((key, before), after)| format!("{key:?}: {before:?} -> {after:?}")).collect()
}

/// A value other than the current one.
fn another(row: &Row) -> String {
    let now = row.value.as_deref().expect("it can be set");
    match (row.knob.as_str(), now) {
        ("channels", _) => "combined=1".into(),
        ("rings", _) => "rx=128 tx=128".into(),
        ("coalescing", _) => "rx-usecs=50".into(),
        ("rss-table", _) => "0x3,1".into(),
        ("rss-fields", fields) => fields.replace("sdfn", "sd"),
        ("qdisc", _) => "pfifo:321".into(),
        ("huge-pages" | "huge-pages-defrag", "madvise") => "never".into(),
        ("huge-pages" | "huge-pages-defrag", _) => "madvise".into(),
        ("rps-cpus" | "xps-cpus" | "xps-rxqs" | "irq-affinity", "1") => "2".into(),
        ("rps-cpus" | "xps-cpus" | "xps-rxqs" | "irq-affinity", _) => "1".into(),
        // A power of two.
        ("rps-flow-count", _) => "16".into(),
        ("timer-migration", "1") => "0".into(),
        (knob, "1") if knob.ends_with("early-demux") => "0".into(),
        ("tcp-congestion-control" | "route-congestion-control", "default" | "cubic") => {
            "reno".into()
        }
        ("tcp-congestion-control" | "route-congestion-control", _) => "cubic".into(),
        ("tcp-sack" | "tcp-autocorking" | "tcp-slow-start-after-idle", "1") => "0".into(),
        ("tcp-tw-reuse", "2") => "1".into(),
        ("tcp-notsent-lowat", _) => "16384".into(),
        (_, "on") => "off".into(),
        (_, "off") => "on".into(),
        _ => now
            .split_whitespace()
            .map(|word| (word.parse::<i64>().expect("a number") + 1).to_string())
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// File in the guest of a plan with these settings.
pub(crate) fn plan(rig: &Rig, card: &str, steps: &[(&Row, String)]) -> String {
    let text = rig.succeed(&format!("wirepath tune plan --profile latency --interface {card}"));
    // Its own steps are removed; machine and card are kept.
    let head = text.split("\n[[").next().expect("a plan");
    let mut text = format!("{head}\n");
    for (row, value) in steps {
        let Row { knob, target, value: seen, .. } = row;
        let seen = seen.as_deref().expect("it can be read").replace('\t', "\\t");
        text.push_str(&format!(
            "\n[[step]]\nknob = \"{knob}\"\ntarget = \"{target}\"\nseen = \"{seen}\"\n\
             value = \"{value}\"\nreason = \"a test\"\n"
        ));
    }
    rig.put(&format!("{card}.toml"), &text)
}

/// Values that the kernel does not choose itself, so that a reset is noticed.
const SEED: &str = "
echo 1 >/sys/class/net/intel/queues/rx-0/rps_cpus
echo 32 >/sys/class/net/intel/queues/rx-0/rps_flow_cnt
for card in vmx vio; do
    echo 2 >/sys/class/net/$card/queues/rx-0/rps_cpus
    echo 3 >/sys/class/net/$card/queues/rx-1/rps_cpus
    echo 64 >/sys/class/net/$card/queues/rx-1/rps_flow_cnt
    echo 2 >/sys/class/net/$card/queues/tx-0/xps_cpus
    echo 1 >/sys/class/net/$card/queues/tx-1/xps_cpus
done
for irq in $(awk '/ (intel-rx-0|vmx-rxtx-1)$/ { sub(\":\", \"\"); print $1 }' /proc/interrupts); do
    echo 2 >/proc/irq/$irq/smp_affinity
done
";

pub(crate) fn every_knob_of_real_cards_is_set_and_restored_exactly(rig: &Rig) {
    rig.succeed(SEED);
    let before = everything(rig);
    let mut exercised = std::collections::BTreeSet::new();
    for card in CARDS {
        let rows = rows(rig, card);
        let refusal = |knob| {
            rows.iter().find(|row| row.knob == knob).expect(knob).cannot.clone().unwrap_or_default()
        };
        match card {
            "intel" => assert!(refusal("channels").contains("not offered by driver e1000e")),
            "vmx" => assert!(refusal("coalescing").contains("not offered by driver vmxnet3")),
            // The driver reports it and refuses to change it: the device lacks it.
            _ => assert!(refusal("coalescing").contains("VIRTIO_NET_F_NOTF_COAL")),
        }
        // e1000e switches both VLAN offloads together.
        let follows = |row: &&Row| card == "intel" && row.knob == "tx-vlan";
        // A removed queue loses its settings, so channels have their own plan.
        let (channels, others): (Vec<&Row>, Vec<&Row>) = rows
            .iter()
            .filter(|row| row.cannot.is_none() && !follows(row))
            .partition(|row| row.knob == "channels");
        let mut plans = vec![others];
        if card == "vio" {
            plans.push(channels);
        }
        for rows in plans {
            let steps: Vec<_> = rows.into_iter().map(|row| (row, another(row))).collect();
            let file = plan(rig, card, &steps);
            let done = rig.json(&format!("wirepath tune apply {file} --json"));
            assert_eq!(done["outcome"], "applied", "{done:#}");
            assert_eq!(done["steps"].as_array().map(Vec::len), Some(steps.len()), "{done:#}");
            exercised.extend(steps.iter().map(|(row, _)| row.knob.clone()));
            let back = rig.json("wirepath tune rollback --json");
            let settings = back["settings"].as_array().expect("a list");
            for outcome in ["failed", "foreign", "gone"] {
                let bad: Vec<_> = settings.iter().filter(|s| s["outcome"] == outcome).collect();
                assert!(bad.is_empty(), "{card}: {bad:#?}");
            }
            let left = differences(&before, &everything(rig));
            assert!(left.is_empty(), "{card}: {left:#?}");
        }
    }
    for knob in ["rings", "coalescing", "channels", "irq-affinity", "rps-cpus", "xps-cpus", "lro"] {
        assert!(exercised.contains(knob), "{exercised:?}");
    }
    assert!(exercised.len() >= 40, "{} knobs: {exercised:?}", exercised.len());
    // Plans of the program can be applied to each card, and change something.
    for (card, profile) in CARDS.iter().flat_map(|card| [(card, "throughput"), (card, "latency")]) {
        let done = rig.json(&format!(
            "wirepath tune plan --profile {profile} --interface {card} --app-cpu 1 >/tmp/plan.toml\n\
             wirepath tune apply /tmp/plan.toml --json"
        ));
        assert_eq!(done["outcome"], "applied", "{card} {profile}: {done:#}");
        rig.succeed("wirepath tune rollback");
    }
    let left = differences(&before, &everything(rig));
    assert!(left.is_empty(), "{left:#?}");
}

/// Number of an interrupt by its name, and its counts by CPU.
pub(crate) fn interrupt(rig: &Rig, name: &str) -> (u32, [u64; 2]) {
    let line = rig.succeed(&format!("grep ' {name}$' /proc/interrupts"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let irq = words[0].trim_end_matches(':').parse().expect("a number");
    (irq, [1, 2].map(|word| words[word].parse().expect("a count")))
}

pub(crate) fn interrupts_move_under_traffic_and_foreign_changes_and_kills_are_survived(rig: &Rig) {
    rig.succeed(SEED);
    rig.succeed("ping -q -i 0.005 10.81.0.2 >/tmp/ping 2>&1 &");
    let all = rows(rig, "intel");
    let (irq, _) = interrupt(rig, "intel-rx-0");
    let row = all.iter().find(|row| row.target == format!("irq {irq}")).expect("it is listed");
    assert_eq!(row.value.as_deref(), Some("2"));
    let before = everything(rig);
    let file = plan(rig, "intel", &[(row, "1".to_owned())]);
    let done = rig.json(&format!("wirepath tune apply {file} --json"));
    // No note about a missing interrupt: its counts grew on the new CPU.
    assert_eq!(done["steps"][0]["note"], Value::Null, "{done:#}");
    let (_, first) = interrupt(rig, "intel-rx-0");
    rig.succeed("sleep 0.3");
    let (_, then) = interrupt(rig, "intel-rx-0");
    assert!(then[0] > first[0] && then[1] == first[1], "{first:?} {then:?}");
    rig.succeed("wirepath tune rollback");
    assert_eq!(differences(&before, &everything(rig)), [""; 0]);

    // A change by another process is reported and kept.
    let wanted = ["rings", "coalescing", "rps-cpus", "tx-queue-len", "gro", "xps-rxqs", "rmem-max"];
    let steps: Vec<_> = all
        .iter()
        .filter(|row| row.cannot.is_none() && wanted.contains(&&*row.knob))
        .map(|row| (row, another(row)))
        .collect();
    let file = plan(rig, "intel", &steps);
    rig.succeed(&format!("wirepath tune apply {file}"));
    rig.succeed("ethtool -C intel rx-usecs 77; echo 555 >/sys/class/net/intel/tx_queue_len");
    let status = rig.succeed("wirepath tune status");
    assert!(status.contains("changed since"), "{status}");
    let back = rig.json("wirepath tune rollback --json");
    let settings = back["settings"].as_array().expect("a list").iter();
    let foreign: Vec<_> =
        settings.filter(|s| s["outcome"] == "foreign").map(|s| s["knob"].as_str()).collect();
    assert_eq!(foreign, [Some("coalescing"), Some("tx-queue-len")], "{back:#}");
    let left = differences(&before, &everything(rig));
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].contains("rx-usecs=77") && left[1].contains("555"), "{left:?}");
    rig.succeed("ethtool -C intel rx-usecs 3; echo 1000 >/sys/class/net/intel/tx_queue_len");
    assert_eq!(differences(&before, &everything(rig)), [""; 0]);

    rig.succeed("killall ping");
    killed(rig, &file);
    assert_eq!(differences(&before, &everything(rig)), [""; 0]);
}

/// An apply that is killed at any line of its journal leaves enough for `tune rollback`.
fn killed(rig: &Rig, file: &str) {
    let points = std::env::var("WIREPATH_TEST_GUEST_KILLS")
        .map_or(10, |text| text.parse().expect("a number"));
    let before = values(rig, &["intel"]);
    let count = format!("wirepath tune apply {file} >/dev/null && wc -l <{STATE}/journal");
    let lines: u32 = rig.succeed(&count).trim().parse().expect("a number");
    rig.succeed("wirepath tune rollback");
    let mut midway = 0;
    for point in 0..points {
        let at = point * lines / points;
        let phase = rig.succeed(&format!(
            "wirepath tune apply {file} >/dev/null 2>&1 &
             apply=$!
             until [ \"$(cat {STATE}/journal 2>/dev/null | wc -l)\" -ge {at} ]; do
                 kill -0 $apply 2>/dev/null || break
             done
             kill -9 $apply 2>/dev/null || true
             wait $apply || true
             if [ -e {STATE}/journal ]; then
                 wirepath tune status --json 2>/dev/null | grep '\"phase\"'
                 wirepath tune rollback >/dev/null
             fi"
        ));
        midway += u32::from(phase.contains("applying") || phase.contains("unchanged"));
        let left = differences(&before, &values(rig, &["intel"]));
        assert!(left.is_empty(), "killed at line {at} of {lines}, {phase}: {left:#?}");
    }
    assert!(4 * midway >= points, "only {midway} of {points} were killed in the midst");
}
