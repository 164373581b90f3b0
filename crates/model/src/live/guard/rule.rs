//! Rules of the user.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::did_you_mean;
use crate::live::LiveFigure;

/// Name of the rule on the share of failed requests.
const ERRORS: &str = "errors";

/// Least ratio of a limit of errors to the share without the setting. At half of it, a rule of 0.1 % fired 117 to 163 times an
/// hour by itself.
const BASE_PART: f64 = 5.0;

/// Bytes of a rule that are read.
const RULE_BYTES_MAX: usize = 200;

/// Largest factor of a rule.
const FACTOR_MAX: f64 = 1000.0;

/// Rule of the user, such as `p99 > 2x` or `errors > 0.1%`.
#[derive(Debug, Clone, PartialEq)]
pub enum GuardRule {
    /// A figure is worse by this factor, above 1.
    Ratio {
        /// Name of the figure.
        figure: String,
        /// Factor in the bad direction.
        factor: f64,
    },
    /// This share of requests fails.
    Errors {
        /// Above 0, at most 1.
        share: f64,
    },
}

/// Reason why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuardRuleError {
    /// Not a rule.
    #[error(
        "`{rule}` is not a valid guard: {why}; write for example `p99 > 2x` or `errors > 0.1%`"
    )]
    Invalid {
        /// Text, shortened.
        rule: String,
        /// Reason.
        why: &'static str,
    },
    /// No judged figure has this name.
    #[error("guard `{rule}`: no judged figure is called `{figure}`{hint}; judged are {judged}")]
    Figure {
        /// Rule as it was given.
        rule: String,
        /// Name.
        figure: String,
        /// "; did you mean …?", or empty.
        hint: String,
        /// Names of the judged figures.
        judged: String,
    },
    /// Too many requests fail already.
    #[error(
        "guard `{rule}`: {base} of the requests fail without the setting, so that it would fire by itself; \
         raise the limit to {least} or more, or leave this guard out"
    )]
    Base {
        /// Rule as it was given.
        rule: String,
        /// Share that fails.
        base: String,
        /// Limit that would do.
        least: String,
    },
}

impl GuardRule {
    /// Checks a rule against the figures and the baseline of this run.
    ///
    /// - `base_error_share`: of the requests of the baseline, 0 to 1.
    ///
    /// Errors: the figure is not judged; the share that fails already is above a fifth of the limit.
    pub fn check(
        &self,
        figures: &[LiveFigure],
        base_error_share: f64,
    ) -> Result<(), GuardRuleError> {
        match self {
            GuardRule::Ratio { figure, .. } => {
                let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
                if names.contains(&figure.as_str()) {
                    return Ok(());
                }
                Err(GuardRuleError::Figure {
                    rule: self.to_string(),
                    figure: figure.clone(),
                    hint: did_you_mean(figure, names.iter().copied()),
                    judged: names.join(", "),
                })
            }
            GuardRule::Errors { share } if base_error_share * BASE_PART > *share => {
                Err(GuardRuleError::Base {
                    rule: self.to_string(),
                    base: percent(base_error_share),
                    least: percent(base_error_share * BASE_PART),
                })
            }
            GuardRule::Errors { .. } => Ok(()),
        }
    }
}

/// At most three digits behind the point, and no zeros at the end.
fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for GuardRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardRule::Ratio { figure, factor } => write!(f, "{figure} > {factor}x"),
            GuardRule::Errors { share } => write!(f, "{ERRORS} > {}", percent(*share)),
        }
    }
}

impl FromStr for GuardRule {
    type Err = GuardRuleError;

    fn from_str(text: &str) -> Result<Self, GuardRuleError> {
        parse(text)
            .map_err(|why| GuardRuleError::Invalid { rule: text.chars().take(60).collect(), why })
    }
}

fn parse(text: &str) -> Result<GuardRule, &'static str> {
    if text.len() > RULE_BYTES_MAX {
        return Err("it is longer than 200 bytes");
    }
    let (figure, limit) = text.split_once('>').ok_or("it has no `>`")?;
    let (figure, limit) = (figure.trim(), limit.trim());
    if figure.is_empty() || figure.chars().any(char::is_whitespace) {
        return Err("the name before `>` must be one word");
    }
    if figure == ERRORS {
        let number = limit.strip_suffix('%').ok_or("the limit of errors is a share in `%`")?;
        let share = number.trim().parse::<f64>().map_err(|_| "its limit is not a number")? / 100.0;
        return if share > 0.0 && share <= 1.0 {
            Ok(GuardRule::Errors { share })
        } else {
            Err("the share must be above 0% and at most 100%")
        };
    }
    let number = limit.strip_suffix('x').ok_or("the limit of a figure is a factor with `x`")?;
    let factor = number.trim().parse::<f64>().map_err(|_| "its limit is not a number")?;
    if factor > 1.0 && factor <= FACTOR_MAX {
        Ok(GuardRule::Ratio { figure: figure.to_owned(), factor })
    } else {
        Err("the factor must be above 1x and at most 1000x")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Better;
    use crate::live::LiveScale;

    fn factor(figure: &str, factor: f64) -> GuardRule {
        GuardRule::Ratio { figure: figure.into(), factor }
    }

    #[test]
    fn rules_are_read_and_written() {
        assert_eq!("p99 > 2x".parse(), Ok(factor("p99", 2.0)));
        assert_eq!(" p99>1.5x ".parse(), Ok(factor("p99", 1.5)));
        let errors: GuardRule = "errors > 0.1%".parse().expect("a rule");
        assert_eq!(errors.to_string(), "errors > 0.1%");
        assert_eq!(factor("p99", 2.0).to_string(), "p99 > 2x");
    }

    #[test]
    fn each_invalid_rule_has_its_reason() {
        for (rule, why) in [
            ("", "it has no `>`"),
            ("p99 2x", "it has no `>`"),
            ("> 2x", "the name before `>` must be one word"),
            ("the p99 > 2x", "the name before `>` must be one word"),
            ("p99 > 2", "the limit of a figure is a factor with `x`"),
            ("p99 > 5%", "the limit of a figure is a factor with `x`"),
            ("p99 > twox", "its limit is not a number"),
            ("p99 > 1x", "the factor must be above 1x and at most 1000x"),
            ("p99 > NaNx", "the factor must be above 1x and at most 1000x"),
            ("p99 > infx", "the factor must be above 1x and at most 1000x"),
            ("errors > 2x", "the limit of errors is a share in `%`"),
            ("errors > 0%", "the share must be above 0% and at most 100%"),
            ("errors > NaN%", "the share must be above 0% and at most 100%"),
        ] {
            let error = rule.parse::<GuardRule>().expect_err(rule);
            assert_eq!(error, GuardRuleError::Invalid { rule: rule.into(), why });
        }
        let error = "p99 > 1".repeat(100).parse::<GuardRule>().expect_err("long").to_string();
        assert!(error.len() < 250 && error.contains("longer than 200 bytes"), "{error}");
    }

    fn check(figures: &[LiveFigure], rule: &str, base: f64) -> Result<(), GuardRuleError> {
        rule.parse::<GuardRule>().expect("a rule").check(figures, base)
    }

    #[test]
    fn rule_is_refused_without_its_figure_or_too_near_to_the_base() {
        let figures = [LiveFigure {
            name: "p99".into(),
            unit: "ms".into(),
            better: Better::Lower,
            scale: LiveScale::Ratio,
        }];
        assert_eq!(check(&figures, "p99 > 2x", 0.5), Ok(()));
        let error = check(&figures, "p98 > 2x", 0.0).expect_err("not judged").to_string();
        assert!(error.contains("no judged figure is called `p98`"), "{error}");
        assert_eq!(check(&figures, "errors > 0.1%", 0.000_2), Ok(()));
        let error = check(&figures, "errors > 0.1%", 0.000_3).expect_err("too near").to_string();
        assert!(
            error.contains("0.03% of the requests fail") && error.contains("0.15% or more"),
            "{error}"
        );
    }
}
