//! Counters of encrypted tunnels in the status line, JSON and metrics.

use std::fmt::Write;

use serde_json::{Value, json};

use super::live::head;
use crate::esp::AssociationCounts;

type ByTunnel = [(String, AssociationCounts)];

/// Below this, the numbers that are left are worth a word: an hour at 70,000 frames a second.
const FEW_NUMBERS: u64 = 1 << 28;

/// Part of the status line: packets refused, and keys that end soon.
pub(super) fn text(tunnels: &ByTunnel) -> String {
    let mut out = String::new();
    for (name, counts) in tunnels {
        for (count, of) in [(counts.bad_tag_count, "bad tag"), (counts.replayed_count, "replayed")]
        {
            if count > 0 {
                let _ = write!(out, "  {name}: {of} {count}");
            }
        }
        if counts.numbers_left < FEW_NUMBERS {
            let _ = write!(out, "  {name}: {} numbers left", counts.numbers_left);
        }
    }
    out
}

/// An object by tunnel.
pub(super) fn json(tunnels: &ByTunnel) -> Value {
    let of = |(name, counts): &(String, AssociationCounts)| {
        let counts = json!({
            "encrypted": counts.encrypted_count,
            "decrypted": counts.decrypted_count,
            "bad_tag": counts.bad_tag_count,
            "replayed": counts.replayed_count,
            "numbers_left": counts.numbers_left,
        });
        (name.clone(), counts)
    };
    Value::Object(tunnels.iter().map(of).collect())
}

/// Metrics by tunnel; empty if none is encrypted.
pub(super) fn prometheus(tunnels: &ByTunnel) -> String {
    let mut out = String::new();
    if tunnels.is_empty() {
        return out;
    }
    let packets = "esp_packets_total";
    head(&mut out, packets, "counter", "Packets of encrypted tunnels by outcome.");
    for (name, counts) in tunnels {
        for (fate, count) in [
            ("encrypted", counts.encrypted_count),
            ("decrypted", counts.decrypted_count),
            ("bad_tag", counts.bad_tag_count),
            ("replayed", counts.replayed_count),
        ] {
            let labels = format!("tunnel=\"{name}\",fate=\"{fate}\"");
            let _ = writeln!(out, "wirepath_tunnel_{packets}{{{labels}}} {count}");
        }
    }
    let left = "esp_numbers_left";
    head(&mut out, left, "gauge", "Sequence numbers that the key of a tunnel has left.");
    for (name, counts) in tunnels {
        let labels = format!("tunnel=\"{name}\"");
        let _ = writeln!(out, "wirepath_tunnel_{left}{{{labels}}} {}", counts.numbers_left);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_shown_by_tunnel() {
        let counts = AssociationCounts {
            encrypted_count: 5,
            decrypted_count: 4,
            bad_tag_count: 0,
            replayed_count: 2,
            numbers_left: 77,
        };
        let tunnels = [("b".to_owned(), counts)];
        assert_eq!(text(&tunnels), "  b: replayed 2  b: 77 numbers left");
        assert_eq!(json(&tunnels)["b"]["decrypted"], 4);
        let metrics = prometheus(&tunnels);
        let packets = "wirepath_tunnel_esp_packets_total{tunnel=\"b\",fate=\"replayed\"} 2\n";
        assert!(metrics.contains(packets), "{metrics}");
        assert!(
            metrics.contains("wirepath_tunnel_esp_numbers_left{tunnel=\"b\"} 77\n"),
            "{metrics}"
        );
        assert_eq!(prometheus(&[]), "");
    }
}
