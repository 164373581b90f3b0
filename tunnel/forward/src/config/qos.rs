//! Quality of service in the file.

use std::fmt::Display;

use serde::Deserialize;
use toml::Spanned;

use super::value::ConfigCheck;
use super::{ClassConfig, PolicerSpec, QosConfig, QueueSpec};
use crate::qos::{BURST_BYTES_MAX, CLASS_COUNT_MAX, RATE_BITS_PER_S_MAX};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QosTable {
    rate_kbps: Option<Spanned<i64>>,
    burst_bytes: Option<Spanned<i64>>,
    police_kbps: Option<Spanned<i64>>,
    police_burst_bytes: Option<Spanned<i64>>,
    overhead_bytes: Option<Spanned<i64>>,
    class: Vec<Spanned<ClassTable>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ClassTable {
    queue_frames: Option<Spanned<i64>>,
    queue_bytes: Option<Spanned<i64>>,
    dscp: Vec<Spanned<i64>>,
    priority: Vec<Spanned<i64>>,
}

/// Rate in bits per second and burst in bytes from the keys `names`; `None` without a rate.
fn bucket(
    names: [&str; 2],
    found: [&Option<Spanned<i64>>; 2],
    check: &mut ConfigCheck<'_>,
) -> Option<(u64, u64)> {
    let keys = names.map(|name| format!("qos.{name}"));
    let rate_max = (RATE_BITS_PER_S_MAX / 1000) as i64;
    let rate_kbps: u64 = check.number(&keys[0], found[0].as_ref(), 1..=rate_max, 0);
    // Default: 10 ms at the rate, at least two full frames of 9000 bytes.
    let burst_default = (rate_kbps * 1000 / 8 / 100).clamp(18_000, BURST_BYTES_MAX);
    let range = 1514..=BURST_BYTES_MAX as i64;
    let burst_bytes = check.number(&keys[1], found[1].as_ref(), range, burst_default);
    if let (None, Some(burst)) = (found[0], found[1]) {
        let problem = "a burst needs a rate";
        check.wrong(burst.span(), &keys[1], problem, format!("add {}, or remove it", names[0]));
    }
    found[0].as_ref().map(|_| (rate_kbps * 1000, burst_bytes))
}

/// Checks policer, shaper, queues and classes.
pub(super) fn qos(found: &QosTable, check: &mut ConfigCheck<'_>) -> QosConfig {
    let shaper =
        bucket(["rate_kbps", "burst_bytes"], [&found.rate_kbps, &found.burst_bytes], check);
    let policer = bucket(
        ["police_kbps", "police_burst_bytes"],
        [&found.police_kbps, &found.police_burst_bytes],
        check,
    );
    if let Some(extra) = found.class.get(CLASS_COUNT_MAX) {
        let problem = format!("there are {} classes", found.class.len());
        check.wrong(extra.span(), "qos.class", problem, format!("give 1 to {CLASS_COUNT_MAX}"));
    }
    let default = [ClassTable::default()];
    let tables: Vec<&ClassTable> = if found.class.is_empty() {
        default.iter().collect()
    } else {
        found.class.iter().map(Spanned::get_ref).collect()
    };
    let (mut seen_dscp, mut seen_priority) = (Vec::new(), Vec::new());
    let classes = tables
        .into_iter()
        .map(|class| ClassConfig {
            queue: QueueSpec {
                frame_count_max: check.number(
                    "qos.class.queue_frames",
                    class.queue_frames.as_ref(),
                    1..=65536,
                    512,
                ),
                byte_count_max: check.number(
                    "qos.class.queue_bytes",
                    class.queue_bytes.as_ref(),
                    1514..=1 << 30,
                    1 << 20,
                ),
            },
            dscp: codes("qos.class.dscp", &class.dscp, 63, &mut seen_dscp, check),
            priority: codes("qos.class.priority", &class.priority, 7, &mut seen_priority, check),
        })
        .collect();
    QosConfig {
        shaper,
        policer: policer
            .map(|(rate_bits_per_s, burst_bytes)| PolicerSpec { rate_bits_per_s, burst_bytes }),
        overhead_bytes: check.number(
            "qos.overhead_bytes",
            found.overhead_bytes.as_ref(),
            0..=256,
            24,
        ),
        classes,
    }
}

/// Checks numbers up to `max`; each may be listed once over all lists.
pub(super) fn codes<T: Copy + PartialEq + Display + TryFrom<i64> + Into<i64> + Default>(
    key: &str,
    found: &[Spanned<i64>],
    max: T,
    seen: &mut Vec<T>,
    check: &mut ConfigCheck<'_>,
) -> Vec<T> {
    let mut codes = Vec::new();
    for found in found {
        let before = check.error_count();
        let code: T = check.number(key, Some(found), 0..=max.into(), T::default());
        if check.error_count() > before {
            continue;
        }
        if seen.contains(&code) {
            let problem = format!("{code} is listed twice");
            check.wrong(found.span(), key, problem, "list each value once");
        }
        seen.push(code);
        codes.push(code);
    }
    codes
}
