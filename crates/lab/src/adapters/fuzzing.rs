//! Properties of figures that the fuzz target checks.

use super::Figure;

/// A figure that parses is written as a figure that parses, and takes a finite value or none from any
/// output. The input is the figure, a line end, and the output.
pub fn figure(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (text, output) = bytes.split_at(end);
    let Ok(text) = std::str::from_utf8(text) else { return };
    // An expression of a user, not of a stranger: a long one takes its time to compile.
    if text.len() > 200 {
        return;
    }
    let Ok(figure) = text.parse::<Figure>() else { return };
    let written = figure.to_string();
    let again: Figure = written.parse().unwrap_or_else(|why| panic!("{written:?}: {why}"));
    assert_eq!(again.to_string(), written);
    let output = output.strip_prefix(b"\n").unwrap_or(output);
    match (figure.take(output), again.take(output)) {
        (Ok(value), Ok(same)) => {
            assert!(value.is_finite() && value == same, "{written:?}: {value}")
        }
        (first, second) => {
            assert_eq!(first.is_err(), second.is_err());
            let _ = first.map_err(|why| assert!(why.to_string().contains(&figure.name)));
        }
    }
}

/// A log gives quantiles that do not fall, or the same error for each of them.
pub fn hdr_log(bytes: &[u8]) {
    for tag in [None, Some("GET")] {
        let taken = [0.0, 0.5, 0.99, 1.0].map(|share| super::hdr::quantile(bytes, tag, share));
        match &taken[0] {
            Ok(_) => assert!(taken.iter().all(|value| value.as_ref().is_ok_and(|n| n.is_finite()))),
            Err(_) => assert!(taken.iter().all(|value| value == &taken[0]), "{taken:?}"),
        }
        assert!(taken.is_sorted_by(|a, b| !matches!((a, b), (Ok(a), Ok(b)) if a > b)), "{taken:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_histogram_logs_passes() {
        testkit::corpus::replay("hdr_log", super::hdr_log);
    }

    #[test]
    fn corpus_of_figures_passes() {
        testkit::corpus::replay("figure", super::figure);
    }
}
