//! The house of market data: path `feed` and `wirepath feed`.

mod books;
mod groups;
mod listen;
mod record;
mod replay;
mod report;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use house::context::Context;
use house::document::{NamedSchema, written};
use house::{Command, House, HouseCommand, HouseService, console, signals};
use marketdata::capture::{CaptureError, Counts, Reader};
use marketdata::json::{Decoder, Format};
use marketdata::listen::ListenDocument;
use marketdata::protocol::Protocol;
use marketdata::record::RecordDocument;
use marketdata::replay::ReplayDocument;
use remote::Failure;

#[derive(Debug, Subcommand)]
enum FeedCommand {
    /// Convert a capture or telegrams to JSON lines
    #[command(after_help = "\
Example:
  wirepath feed decode morning.pcapng | jq -c 'select(.symbol == \"2330\") | .trade'")]
    Decode(DecodeArgs),
    /// Print a Wireshark dissector (Lua) for telegrams of the Taiwan exchanges
    #[command(after_help = "\
Example:
  wirepath feed dissector > twse.lua   (then: tshark -X lua_script:twse.lua -r morning.pcapng)")]
    Dissector,
    /// Receive a group or an A/B pair, with full accounting
    #[command(after_help = "\
Example:
  wirepath feed listen 224.0.100.100:10000 --group-b 224.0.200.200:20000 -i eth1
  wirepath feed listen 233.54.12.111:26477 --mold --recover 192.0.2.9:18000 -i eth1 --json")]
    Listen(Box<listen::ListenArgs>),
    /// Send a capture with its own timing, or a synthetic session
    #[command(after_help = "\
Example:
  wirepath feed replay --synthetic --rate 20000 --to 239.1.1.1:10000 -i veth0 --time 30s
  wirepath feed replay morning.pcapng --to 239.1.1.1:10000 -i veth0 --speed 10")]
    Replay(Box<replay::ReplayArgs>),
    /// Show the quality of a recorded feed on one page: leads, losses, bursts, latency
    #[command(after_help = "\
Example:
  wirepath feed report morning.pcapng --html morning.html
  wirepath feed report all.pcapng --from 224.0.100.100:10000 --from-b 224.0.200.200:20000 --json")]
    Report(report::ReportArgs),
    /// Record a group or an A/B pair to a pcapng file
    #[command(after_help = "\
Example:
  wirepath feed record 224.0.100.100:10000 morning.pcapng -i eth1 --time 10m")]
    Record(record::RecordArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// Detect by structure, for each destination
    Auto,
    /// TWSE and TPEx telegrams
    Twse,
    /// ITCH 5.0 in MoldUDP64
    Mold,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// pcap, pcapng or a file of telegrams, also compressed (gzip); `-` for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Format of the datagrams
    #[arg(long, value_enum, default_value = "auto")]
    format: FormatName,
}

/// The house of market data.
pub struct FeedHouse;

impl House for FeedHouse {
    fn paths(&self) -> Vec<Box<dyn model::Path>> {
        vec![Box::new(feed::Feed)]
    }

    fn commands(&self) -> &'static [Command] {
        const { &[Command::new::<FeedCommand>()] }
    }

    fn documents(&self) -> &'static [NamedSchema] {
        &[
            ("feed listen", written::<ListenDocument<'_>>),
            ("feed record", written::<RecordDocument>),
            ("feed replay", written::<ReplayDocument<'_>>),
            ("feed report", written::<ListenDocument<'_>>),
        ]
    }

    fn services(&self) -> &'static [HouseService] {
        &[HouseService {
            name: feed::SERVICE,
            what: "Quotes for `prove feed --far`",
            starts_programs: false,
            answer: || Ok(feed::serve_exchange(signals::stop_flag())?),
        }]
    }
}

impl HouseCommand for FeedCommand {
    const NAME: &str = "feed";
    const ABOUT: &str = "Receive, replay, record and decode market data";
    const EXAMPLE: &str = "  wirepath feed decode morning.pcapng | jq -c .trade";

    fn starts_programs(&self) -> bool {
        false
    }

    fn run(&self, context: &Context) -> Result<(), Failure> {
        match self {
            FeedCommand::Decode(args) => decode(args),
            FeedCommand::Dissector => console::text(marketdata::TWSE_DISSECTOR),
            FeedCommand::Listen(args) => listen::run(context, args),
            FeedCommand::Replay(args) => replay::run(context, args),
            FeedCommand::Report(args) => report::run(context, args),
            FeedCommand::Record(args) => record::run(context, args),
        }
    }
}

fn decode(args: &DecodeArgs) -> Result<(), Failure> {
    if args.file != Path::new("-") {
        let file = args.file.display().to_string();
        let input = File::open(&args.file)
            .map_err(|source| capture_failure(CaptureError::Open { file: file.clone(), source }))?;
        return decode_from(args, file, input);
    }
    if io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "standard input is a terminal; give a file or pipe a capture".to_owned(),
        ));
    }
    decode_from(args, "standard input".to_owned(), io::stdin().lock())
}

/// Failure of a capture that cannot be begun: a file that is missing or is none is a mistake of the user.
fn capture_failure(error: CaptureError) -> Failure {
    match error {
        CaptureError::Open { .. }
        | CaptureError::Empty { .. }
        | CaptureError::Compressed { .. }
        | CaptureError::Unknown { .. } => Failure::usage(error),
        error => Failure::from_chain(&error),
    }
}

/// End of the output.
enum End {
    Whole,
    Closed,
    Damaged(CaptureError),
}

fn decode_from(args: &DecodeArgs, file: String, input: impl Read) -> Result<(), Failure> {
    let opened = match args.format {
        // An explicit format overrides the magic number.
        FormatName::Twse => Reader::or_telegrams(file, input),
        FormatName::Auto | FormatName::Mold => Reader::new(file, input),
    };
    let mut reader = opened.map_err(capture_failure)?;
    let format = match args.format {
        FormatName::Auto => Format::Auto,
        FormatName::Twse => Format::Given(Protocol::Twse),
        FormatName::Mold => Format::Given(Protocol::Mold),
    };
    let output = BufWriter::with_capacity(256 << 10, io::stdout().lock());
    let mut decoder = Decoder::new(output, format);
    // Piped input may be live, so flush after every datagram.
    let is_live = args.file == Path::new("-");
    let end = match decode_all(&mut reader, &mut decoder, is_live) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => End::Closed,
        Err(e) => return Err(Failure::failed(format!("cannot write to standard output: {e}"))),
        Ok(end) => end,
    };
    let written = *decoder.counts();
    match end {
        End::Closed => return Ok(()),
        End::Damaged(error) => return Err(Failure::from_chain(&error)),
        End::Whole => {}
    }
    if let Some(said) = skipped(reader.counts()) {
        console::say(&said);
    }
    let foreign = decoder.foreign_text();
    if !written.has_content() && !signals::stop_requested() {
        return nothing_decoded(reader.counts(), written.errors, foreign);
    }
    if written.errors > 0 {
        console::say(&format!(
            "{} malformed, {} decoded; see the objects with \"error\"",
            written.errors, written.messages
        ));
    }
    if written.bodies > 0 {
        console::say(&format!(
            "{} messages in MoldUDP64 are not of ITCH 5.0; their objects have \"undecoded\" and the body",
            written.bodies
        ));
    }
    if let Some(said) = foreign {
        console::say(&said);
    }
    Ok(())
}

/// The end of a file in which nothing was decoded. Errors: there was something, and none of it can be read.
fn nothing_decoded(counts: &Counts, errors: u64, foreign: Option<String>) -> Result<(), Failure> {
    let why = match (counts.datagrams, foreign, errors) {
        // The snapshot length has cut them, as was asked for.
        (0, ..) if counts.packets == counts.cut => return Ok(()),
        (0, ..) => "there is no UDP datagram in IPv4".to_owned(),
        (_, Some(text), _) => format!("{text}; --format sets the protocol"),
        (_, None, 0) => return Ok(()),
        (_, None, errors) => format!("{errors} malformed; see the objects with \"error\""),
    };
    Err(Failure::failed(format!("nothing was decoded: {why}")))
}

fn decode_all<R: Read>(
    reader: &mut Reader<R>,
    decoder: &mut Decoder<impl io::Write>,
    is_live: bool,
) -> io::Result<End> {
    let mut end = End::Whole;
    while !signals::stop_requested() {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                decoder.datagram(&datagram)?;
                if is_live {
                    decoder.flush()?;
                }
            }
            Ok(None) => break,
            // Reported once; packets of supported link types are still read.
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

/// Summary of skipped packets; `None` if there are none.
fn skipped(counts: &Counts) -> Option<String> {
    let all = [
        (counts.fragments, "IPv4 fragments"),
        (counts.not_ipv4, "not IPv4"),
        (counts.not_udp, "not UDP"),
        (counts.cut, "truncated (raise the snapshot length)"),
        (counts.malformed, "with contradictory headers"),
        (counts.unknown_link, "of an unsupported link type"),
    ];
    let there: Vec<String> = all
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!there.is_empty())
        .then(|| format!("skipped of {} packets: {}", counts.packets, there.join(", ")))
}
