//! The kernel command line.

use core::fmt;
use core::net::Ipv4Addr;

use crate::Switches;

/// Options of the kernel command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config<'a> {
    pub switches: Switches,
    /// `ip=`; 10.0.0.2 if not given.
    pub ip: Ipv4Addr,
    /// `mac=`; the device's own if not given.
    pub mac: Option<[u8; 6]>,
    /// `wirepath.uart=115200`: every character takes as long as on a real serial line.
    pub uart_paced: bool,
    /// `wirepath.gpio`: a pin is toggled per packet.
    pub gpio: bool,
    /// `wirepath.selftest` or `wirepath.selftest=NAME`: run kernel tests instead of the responder.
    /// The name of one test; empty for all tests that return.
    pub selftest: Option<&'a str>,
}

/// Error in the kernel command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError<'a> {
    /// Unknown switch.
    Switch(&'a str),
    /// Unknown `wirepath.` option.
    Option(&'a str),
    /// Invalid value of an option.
    Value { option: &'a str, value: &'a str },
}

impl fmt::Display for ConfigError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ConfigError::Switch(name) => {
                write!(f, "unknown switch {name:?}; there are")?;
                crate::Switch::ALL.iter().try_for_each(|switch| write!(f, " {}", switch.id()))
            }
            ConfigError::Option(name) => write!(
                f,
                "unknown option {name:?}; there are wirepath.switches= wirepath.uart=115200 \
                 wirepath.gpio wirepath.selftest ip= mac="
            ),
            ConfigError::Value { option, value } => {
                write!(f, "{option} cannot be {value:?}")
            }
        }
    }
}

impl core::error::Error for ConfigError<'_> {}

impl<'a> Config<'a> {
    /// Parses the command line. Words without the `wirepath.` prefix belong to other programs and
    /// are skipped.
    pub fn parse(command_line: &'a str) -> Result<Config<'a>, ConfigError<'a>> {
        let mut config = Config {
            switches: Switches::default(),
            ip: Ipv4Addr::new(10, 0, 0, 2),
            mac: None,
            uart_paced: false,
            gpio: false,
            selftest: None,
        };
        for word in command_line.split_ascii_whitespace() {
            let (option, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = ConfigError::Value { option, value };
            match option {
                "wirepath.switches" => {
                    config.switches = Switches::parse(value).map_err(ConfigError::Switch)?;
                }
                "wirepath.uart" => match value {
                    "115200" => config.uart_paced = true,
                    _ => return Err(wrong),
                },
                "wirepath.gpio" => config.gpio = true,
                "wirepath.selftest" => config.selftest = Some(value),
                "ip" => config.ip = value.parse().map_err(|_| wrong)?,
                "mac" => config.mac = Some(parse_mac(value).ok_or(wrong)?),
                _ if option.starts_with("wirepath.") => return Err(ConfigError::Option(option)),
                _ => {}
            }
        }
        Ok(config)
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    // A multicast address is not valid for an interface.
    (parts.next().is_none() && mac[0] & 1 == 0).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Switch;

    #[test]
    fn empty_line_is_the_baseline() {
        let config = Config::parse("").expect("it is empty");
        assert_eq!((config.switches.word(), config.selftest), (0, None));
        assert_eq!(config.ip, Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn all_options_are_read_and_foreign_words_skipped() {
        let line = "console=ttyAMA0 wirepath.switches=quiet,event-idx ip=192.168.7.9 \
                    mac=02:00:00:AA:00:01 wirepath.uart=115200 wirepath.gpio \
                    wirepath.selftest=overflow";
        let config = Config::parse(line).expect("the line is valid");
        assert!(config.switches.has(Switch::Quiet) && config.switches.has(Switch::EventIdx));
        assert!(!config.switches.has(Switch::AsyncTx));
        assert_eq!(config.ip, Ipv4Addr::new(192, 168, 7, 9));
        assert_eq!(config.mac, Some([2, 0, 0, 0xaa, 0, 1]));
        assert!(config.uart_paced && config.gpio);
        assert_eq!(config.selftest, Some("overflow"));
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for (line, expected) in [
            ("wirepath.switches=fast", ConfigError::Switch("fast")),
            ("wirepath.swiches=quiet", ConfigError::Option("wirepath.swiches")),
            ("wirepath.uart=9600", ConfigError::Value { option: "wirepath.uart", value: "9600" }),
            ("ip=10.0.0", ConfigError::Value { option: "ip", value: "10.0.0" }),
            ("mac=1:2:3:4:5:6", ConfigError::Value { option: "mac", value: "1:2:3:4:5:6" }),
            (
                "mac=01:00:00:00:00:00",
                ConfigError::Value { option: "mac", value: "01:00:00:00:00:00" },
            ),
        ] {
            assert_eq!(Config::parse(line), Err(expected), "{line}");
            assert!(expected.to_string().len() > 10);
        }
    }
}
