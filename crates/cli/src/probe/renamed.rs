//! Earlier options of the engine, each refused with the form that it has now.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// An earlier option.
struct Renamed {
    name: &'static str,
    short: Option<char>,
    has_value: bool,
    now: &'static str,
}

const fn flag(name: &'static str, short: Option<char>, now: &'static str) -> Renamed {
    Renamed { name, short, has_value: false, now }
}

const fn option(name: &'static str, now: &'static str) -> Renamed {
    Renamed { name, short: None, has_value: true, now }
}

const RENAMED: &[Renamed] = &[
    option("engine", "--arm bypass for xdp, --packet for packet, and neither for udp"),
    option("far-engine", "--far-arm: bypass for xdp, baseline for udp"),
    option("mode", "--arm bypass+native for native, --arm bypass for skb"),
    option("receiving", "--arm epoll, --arm epoll+epoll-busy-poll or --arm io-uring"),
    option("batch", "--arm batch, with --batch-size for another number than 64"),
    flag("native", Some('N'), "--arm bypass+native"),
    flag("skb", Some('S'), "--arm bypass, without native"),
    flag("zero-copy", Some('z'), "--arm bypass+native+zero-copy"),
    flag("poll", Some('p'), "the default: leave it out"),
    flag("spin", None, "--arm spin"),
    flag("busy-poll", None, "--arm busy-poll"),
    flag("need-wakeup", None, "--arm bypass+need-wakeup"),
    flag("gso", None, "--arm gso"),
    flag("irq-suspend", None, "--arm epoll+epoll-busy-poll+irq-suspend"),
    flag("zero-copy-send", None, "--arm zero-copy-send"),
    flag("huge-pages", None, "--arm bypass+huge-pages"),
    flag("unaligned-chunks", None, "--arm bypass+unaligned-chunks"),
    flag("no-idle-states", None, "--arm no-idle-states"),
];

/// The earlier options as arguments: hidden, and refused.
#[derive(Debug)]
pub(crate) struct RenamedArgs;

impl Args for RenamedArgs {
    fn augment_args(command: Command) -> Command {
        RENAMED.iter().fold(command, |command, renamed| {
            let arg = Arg::new(renamed.name).long(renamed.name).short(renamed.short).hide(true);
            let arg = arg.action(ArgAction::Set).value_parser(|_: &str| {
                Err::<String, _>(format!("--{} is now {}", renamed.name, renamed.now))
            });
            command.arg(if renamed.has_value {
                arg
            } else {
                arg.num_args(0).default_missing_value("")
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        RenamedArgs::augment_args(command)
    }
}

impl FromArgMatches for RenamedArgs {
    fn from_arg_matches(_matches: &ArgMatches) -> Result<Self, Error> {
        Ok(RenamedArgs)
    }

    fn update_from_arg_matches(&mut self, _matches: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
