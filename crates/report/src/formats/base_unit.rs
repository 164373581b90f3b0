//! Units of metrics in the base units of other tools' conventions.

/// A base unit, and the factor that makes it of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BaseUnit {
    pub(super) name: &'static str,
    pub(super) factor: f64,
}

/// Returns the base unit of a metric's unit; `None` of counts, and of units that a user's program has by itself.
///
/// Source: Prometheus' and OpenMetrics' lists of base units.
pub(super) fn base_unit(unit: &str) -> Option<BaseUnit> {
    let (name, factor) = match unit {
        "ns" => ("seconds", 1e-9),
        "us" => ("seconds", 1e-6),
        "ms" => ("seconds", 1e-3),
        "s" => ("seconds", 1.0),
        "bytes" => ("bytes", 1.0),
        "bps" => ("bytes_per_second", 0.125),
        "pps" => ("packets_per_second", 1.0),
        "share" => ("ratio", 1.0),
        "percent" => ("ratio", 0.01),
        _ => return None,
    };
    Some(BaseUnit { name, factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_shares_and_rates_have_base_units_and_counts_have_none() {
        fn value(value: f64, unit: &str) -> Option<(f64, &'static str)> {
            base_unit(unit).map(|base| (value * base.factor, base.name))
        }
        assert_eq!(value(250.0, "ms"), Some((0.25, "seconds")));
        assert_eq!(value(8e9, "bps"), Some((1e9, "bytes_per_second")));
        assert_eq!(value(50.0, "percent"), Some((0.5, "ratio")));
        assert_eq!(value(1.0, "count"), None);
        assert_eq!(value(1.0, "rps"), None);
    }
}
