//! `wirepath feed`: what the path `feed` does by hand.

mod groups;
mod listen;
mod record;
mod replay;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use paths::feed::capture::{CaptureError, Counts, Reader};
use paths::feed::json::{Decoder, Format};

use crate::args::Cli;
use crate::end::Failure;
use crate::{console, stop};

#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Turn a capture, or telegrams, into JSON lines
    #[command(after_help = "\
Example:
  wirepath feed decode morning.pcapng | jq -c 'select(.symbol == \"2330\") | .trade'")]
    Decode(DecodeArgs),
    /// Receive a group, or an A/B pair, with all its books
    #[command(after_help = "\
Example:
  wirepath feed listen --group 224.0.100.100:10000 --group-b 224.0.200.200:20000 -i eth1
  wirepath feed listen --group 233.54.12.111:26477 --mold --recover 192.0.2.9:18000 -i eth1 --json")]
    Listen(Box<listen::ListenArgs>),
    /// Send a capture with its own timing, or a made-up session
    #[command(after_help = "\
Example:
  wirepath feed replay --synthetic --rate 20000 --to 239.1.1.1:10000 -i veth0 -d 30s
  wirepath feed replay morning.pcapng --to 239.1.1.1:10000 -i veth0 --speed 10")]
    Replay(Box<replay::ReplayArgs>),
    /// Write a group, or an A/B pair, to a pcapng file
    #[command(after_help = "\
Example:
  wirepath feed record --group 224.0.100.100:10000 -i eth1 morning.pcapng -d 10m")]
    Record(record::RecordArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// Look at each datagram
    Auto,
    /// TWSE and TPEx telegrams
    Twse,
    /// ITCH 5.0 in MoldUDP64
    Mold,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// pcap, pcapng or a file of telegrams; `-` for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// What the datagrams hold
    #[arg(long, value_enum, default_value = "auto")]
    format: FormatName,
}

pub(crate) fn run(cli: &Cli, command: &FeedCommand) -> Result<(), Failure> {
    match command {
        FeedCommand::Decode(args) => decode(args),
        FeedCommand::Listen(args) => listen::run(cli, args),
        FeedCommand::Replay(args) => replay::run(cli, args),
        FeedCommand::Record(args) => record::run(cli, args),
    }
}

fn decode(args: &DecodeArgs) -> Result<(), Failure> {
    if args.file != Path::new("-") {
        let file = args.file.display().to_string();
        let input = File::open(&args.file)
            .map_err(|source| Failure::of(&CaptureError::Open { file: file.clone(), source }))?;
        return decode_from(args, file, input);
    }
    if io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "standard input is a terminal; give a file, or pipe a capture in".to_owned(),
        ));
    }
    decode_from(args, "standard input".to_owned(), io::stdin().lock())
}

/// How reading ended when nobody wants to hear more, or the capture is over.
enum End {
    Whole,
    Nobody,
    Damaged(CaptureError),
}

fn decode_from(args: &DecodeArgs, file: String, input: impl Read) -> Result<(), Failure> {
    let opened = match args.format {
        // Whoever says what it is knows better than the magic.
        FormatName::Twse => Reader::or_telegrams(file, input),
        FormatName::Auto | FormatName::Mold => Reader::new(file, input),
    };
    let mut reader = opened.map_err(|e| Failure::of(&e))?;
    let format = match args.format {
        FormatName::Auto => Format::Auto,
        FormatName::Twse => Format::Twse,
        FormatName::Mold => Format::Mold,
    };
    let output = BufWriter::with_capacity(256 << 10, io::stdout().lock());
    let mut decoder = Decoder::new(output, format);
    // Whoever pipes a capture in wants to see what is decoded now.
    let is_live = args.file == Path::new("-");
    let end = match decode_all(&mut reader, &mut decoder, is_live) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => End::Nobody,
        Err(e) => return Err(Failure::failed(format!("cannot write to standard output: {e}"))),
        Ok(end) => end,
    };
    let written = *decoder.counts();
    match end {
        End::Nobody => return Ok(()),
        End::Damaged(error) => return Err(Failure::of(&error)),
        End::Whole => {}
    }
    if let Some(said) = skipped(reader.counts()) {
        console::say(&said);
    }
    if written.errors > 0 {
        console::say(&format!(
            "{} malformed, {} decoded; the objects with \"error\" say where",
            written.errors, written.messages
        ));
    }
    Ok(())
}

fn decode_all<R: Read>(
    reader: &mut Reader<R>,
    decoder: &mut Decoder<impl io::Write>,
    is_live: bool,
) -> io::Result<End> {
    let mut end = End::Whole;
    while !stop::asked() {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                decoder.datagram(&datagram)?;
                if is_live {
                    decoder.flush()?;
                }
            }
            Ok(None) => break,
            // Said once; the packets that can be read still are.
            Err(error @ CaptureError::Link { .. }) => {
                decoder.error("link", &error.to_string())?;
            }
            Err(error) => {
                decoder.error("capture", &host::text::chain(&error))?;
                end = End::Damaged(error);
            }
        }
    }
    decoder.flush()?;
    Ok(end)
}

/// What was in the capture and is not in the output.
fn skipped(counts: &Counts) -> Option<String> {
    let all = [
        (counts.fragments, "IPv4 fragments"),
        (counts.not_ipv4, "not IPv4"),
        (counts.not_udp, "not UDP"),
        (counts.cut, "not captured whole (raise the snapshot length)"),
        (counts.malformed, "with headers that contradict themselves"),
        (counts.unknown_link, "of a link type that is not read"),
    ];
    let there: Vec<String> = all
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!there.is_empty())
        .then(|| format!("skipped of {} packets: {}", counts.packets, there.join(", ")))
}
