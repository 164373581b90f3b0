//! Exact prices with four decimals.

use core::fmt;

/// A price in ten-thousandths of the currency's unit: 995.00 is 9,950,000.
///
/// Displays the exact decimal with at least two decimals: `995.00`, `10.125`.
/// 0 in the best level of a TWSE book means market orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Price(pub u64);

impl Price {
    /// Ten-thousandths in one unit of the currency.
    pub const SCALE: u64 = 10_000;

    /// True if the price is 0, which means market orders in a best bid or ask.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / Price::SCALE, self.0 % Price::SCALE);
        // `{:.N}` of a formatter would cut digits off; the exact price is never cut.
        if fraction % 100 == 0 {
            write!(f, "{whole}.{:02}", fraction / 100)
        } else if fraction % 10 == 0 {
            write!(f, "{whole}.{:03}", fraction / 10)
        } else {
            write!(f, "{whole}.{fraction:04}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn price_displays_all_decimals_and_at_least_two() {
        for (price, printed) in [
            (0, "0.00"),
            (1, "0.0001"),
            (100, "0.01"),
            (9_950_000, "995.00"),
            (335_000, "33.50"),
            (101_250, "10.125"),
            (101_255, "10.1255"),
            (100_050, "10.005"),
            (u64::MAX, "1844674407370955.1615"),
        ] {
            assert_eq!(Price(price).to_string(), printed);
        }
    }
}
