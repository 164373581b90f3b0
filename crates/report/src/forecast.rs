//! Sentences about the time that a resolution needs.

use std::time::Duration;

use model::Forecast;

use crate::answer::percent;
use crate::units;

/// Time that the resolution needs, and the difference that the given time is enough for.
///
/// - `resolve`: ratio above 1.
/// - `time`: the given time.
pub fn plan(forecast: &Forecast, resolve: f64, time: Duration) -> String {
    let wanted = percent(resolve - 1.0);
    let needed = units::duration(Duration::from_millis(forecast.whole_ms));
    let given = units::duration(time);
    let reaches = percent(forecast.reaches - 1.0);
    let blocks = units::grouped(i64::from(forecast.blocks));
    if Duration::from_millis(forecast.whole_ms) <= time {
        return format!(
            "to find {wanted} in 19 of 20 runs takes about {blocks} blocks, {needed}; {given} find {reaches}"
        );
    }
    format!(
        "to find {wanted} in 19 of 20 runs takes about {blocks} blocks, {needed}; the {given} given find {reaches}: \
         give --time {}s for {wanted}",
        forecast.whole_s()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_says_what_the_resolution_needs_and_what_the_time_finds() {
        let mut forecast = Forecast { blocks: 240, whole_ms: 300_000, reaches: 1.093 };
        let minute = Duration::from_secs(60);
        assert_eq!(
            plan(&forecast, 1.05, minute),
            "to find 5 % in 19 of 20 runs takes about 240 blocks, 5 min 0 s; the 60.0 s given find 9.3 %: give --time \
             330s for 5 %"
        );
        forecast = Forecast { blocks: 24, whole_ms: 31_000, reaches: 1.029 };
        assert_eq!(
            plan(&forecast, 1.05, minute),
            "to find 5 % in 19 of 20 runs takes about 24 blocks, 31.0 s; 60.0 s find 2.9 %"
        );
    }
}
