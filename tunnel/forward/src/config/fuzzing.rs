//! Invariants of the configuration parser, for the fuzz target and the replay of its corpus.

use std::str;

use super::Config;

/// A configuration parses and is usable, or each error names an existing line and a remedy.
pub fn tunnel_config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Config::parse(text) {
        Ok(config) => {
            assert!(config.fixed_differences(&config).is_empty());
            config.table(7).expect("static addresses were checked");
            config.classifier();
            config.shaper(0);
            assert_eq!(config.decap().tunnels.len(), config.tunnels.len());
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
                assert!(!error.problem.is_empty() && !error.remedy.is_empty(), "{error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_configurations_holds() {
        testkit::corpus::replay("tunnel_config", super::tunnel_config);
    }
}
