//! Messages by value: decoded from bytes, encoded to bytes.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{EncodeError, ItchError};
use super::kind::Kind;
use super::raw::{self, HEAD_BYTES};
use super::value::{BookSide, Stock, Timestamp};
use crate::price::Price;

/// Bytes of the longest message.
pub const MAX_BYTES: usize = Kind::Imbalance.message_bytes();

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Index of the instrument for the day; 0 when it is about none.
    pub locate: u16,
    /// The exchange's own number.
    pub tracking: u16,
    /// When the exchange wrote it.
    pub timestamp: Timestamp,
    /// Decoded body.
    pub body: Body<'a>,
}

/// Body of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// `S`.
    SystemEvent(SystemEvent),
    /// `R`.
    StockDirectory(StockDirectory),
    /// `A`, and with an attribution `F`.
    AddOrder(AddOrder),
    /// `E`, and at another price than the order's `C`.
    OrderExecuted(OrderExecuted),
    /// `X`.
    OrderCancel(OrderCancel),
    /// `D`.
    OrderDelete(OrderDelete),
    /// `U`.
    OrderReplace(OrderReplace),
    /// `P`.
    Trade(Trade),
    /// `Q`.
    CrossTrade(CrossTrade),
    /// `B`.
    BrokenTrade(BrokenTrade),
    /// Another type, with a valid size and a raw body.
    Other {
        /// Message type.
        kind: Kind,
        /// Bytes after the timestamp.
        bytes: &'a [u8],
    },
}

/// Start or end of something for all instruments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SystemEvent {
    /// `O` and `C` start and end of messages, `S` and `E` of system hours, `Q` and `M` of market
    /// hours.
    pub event: u8,
}

/// An instrument; each letter as the specification lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StockDirectory {
    /// Name of the instrument.
    pub stock: Stock,
    /// Listing market.
    pub market_category: u8,
    /// `N` normal, a space not known.
    pub financial_status: u8,
    /// Shares in a round lot.
    pub round_lot: u32,
    /// `Y` when only round lots are taken.
    pub round_lots_only: u8,
    /// Class of the security.
    pub issue_class: u8,
    /// Finer than the class.
    pub issue_sub_type: [u8; 2],
    /// `P` live, `T` test.
    pub authenticity: u8,
    /// `Y` restricted, `N` not, a space not known.
    pub short_sale_threshold: u8,
    /// `Y` set up for an offering, `N` not, a space not known.
    pub ipo: u8,
    /// `1`, `2` or a space.
    pub luld_tier: u8,
    /// `Y` exchange-traded product, `N` not, a space not known.
    pub etp: u8,
    /// Leverage of the product; 0 not known.
    pub etp_leverage: u32,
    /// `Y` inverse, `N` not.
    pub inverse: u8,
}

/// A new order in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddOrder {
    /// Reference number of the order, unique for the day.
    pub reference: u64,
    /// Side of the book.
    pub side: BookSide,
    /// Shares.
    pub shares: u32,
    /// Instrument.
    pub stock: Stock,
    /// Price, up to `u32::MAX` ten-thousandths.
    pub price: Price,
    /// The participant, when it is named.
    pub attribution: Option<[u8; 4]>,
}

/// Shares of an order were executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderExecuted {
    /// The order.
    pub reference: u64,
    /// Shares executed; the order shrinks by this count.
    pub shares: u32,
    /// Number of the match.
    pub match_number: u64,
    /// Price of the execution if it differs from the order's.
    pub at: Option<ExecutionPrice>,
}

/// At which price an order was executed, if not at its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExecutionPrice {
    /// `N` when the shares are reported otherwise too, and must not be counted twice.
    pub printable: u8,
    /// Price, up to `u32::MAX` ten-thousandths.
    pub price: Price,
}

/// Shares of an order were cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderCancel {
    /// The order.
    pub reference: u64,
    /// Shares that leave the book; others stay.
    pub shares: u32,
}

/// An order is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderDelete {
    /// The order.
    pub reference: u64,
}

/// An order took another's place, on the same side of the same instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderReplace {
    /// The order that is gone.
    pub original: u64,
    /// The new one.
    pub new: u64,
    /// Shares of the new order.
    pub shares: u32,
    /// Price of the new order, up to `u32::MAX` ten-thousandths.
    pub price: Price,
}

/// A trade against an order that was not displayed: no book changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trade {
    /// The order, or 0.
    pub reference: u64,
    /// The hidden order's side.
    pub side: BookSide,
    /// Shares.
    pub shares: u32,
    /// Instrument.
    pub stock: Stock,
    /// Price, up to `u32::MAX` ten-thousandths.
    pub price: Price,
    /// Number of the match.
    pub match_number: u64,
}

/// A cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CrossTrade {
    /// Shares.
    pub shares: u64,
    /// Instrument.
    pub stock: Stock,
    /// Price, up to `u32::MAX` ten-thousandths.
    pub price: Price,
    /// Number of the match.
    pub match_number: u64,
    /// `O` opening, `C` closing, `H` after a halt or of a new issue.
    pub cross_type: u8,
}

/// A trade is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BrokenTrade {
    /// Number of the match.
    pub match_number: u64,
}

/// Reference of the order that a message is about, read without a check of the message: for a look ahead. `None` if its
/// type is about no order.
#[inline]
pub fn order_reference(bytes: &[u8]) -> Option<u64> {
    let (&[b'A' | b'F' | b'E' | b'C' | b'X' | b'D' | b'U', ..], body) =
        bytes.split_first_chunk::<HEAD_BYTES>()?
    else {
        return None;
    };
    body.first_chunk().copied().map(u64::from_be_bytes)
}

impl<'a> Message<'a> {
    /// The message that these bytes are, no more and no less.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, ItchError> {
        let &letter = bytes.first().ok_or(ItchError::Empty)?;
        let kind = Kind::from_wire(letter).ok_or(ItchError::Type { found: letter })?;
        let size = ItchError::Size { kind, found_bytes: bytes.len() };
        if bytes.len() != kind.message_bytes() {
            return Err(size);
        }
        let (head, body) = raw::Head::ref_from_prefix(bytes).map_err(|_| size)?;
        let [a, b, c, d, e, f] = head.timestamp;
        Ok(Message {
            locate: head.locate.get(),
            tracking: head.tracking.get(),
            timestamp: Timestamp(u64::from_be_bytes([0, 0, a, b, c, d, e, f])),
            body: Body::parse(kind, body, size)?,
        })
    }

    /// Type of the message.
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::SystemEvent(_) => Kind::SystemEvent,
            Body::StockDirectory(_) => Kind::StockDirectory,
            Body::AddOrder(AddOrder { attribution: None, .. }) => Kind::AddOrder,
            Body::AddOrder(_) => Kind::AddAttributed,
            Body::OrderExecuted(OrderExecuted { at: None, .. }) => Kind::OrderExecuted,
            Body::OrderExecuted(_) => Kind::ExecutedAtPrice,
            Body::OrderCancel(_) => Kind::OrderCancel,
            Body::OrderDelete(_) => Kind::OrderDelete,
            Body::OrderReplace(_) => Kind::OrderReplace,
            Body::Trade(_) => Kind::Trade,
            Body::CrossTrade(_) => Kind::CrossTrade,
            Body::BrokenTrade(_) => Kind::BrokenTrade,
            Body::Other { kind, .. } => kind,
        }
    }

    /// Writes the message to the start of `buffer` and returns its length.
    ///
    /// Errors: the buffer is too short, or a price or the time exceeds its field. The content of the
    /// buffer is then unspecified.
    #[inline]
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let kind = self.kind();
        let (needed_bytes, had_bytes) = (kind.message_bytes(), buffer.len());
        let short = EncodeError::Short { needed_bytes, had_bytes };
        let message = buffer.get_mut(..needed_bytes).ok_or(short)?;
        let (head, body) = raw::Head::mut_from_prefix(message).map_err(|_| short)?;
        let [0, 0, timestamp @ ..] = self.timestamp.0.to_be_bytes() else {
            let max = (1 << 48) - 1;
            return Err(EncodeError::Number { field: "timestamp", value: self.timestamp.0, max });
        };
        *head = raw::Head {
            kind: kind.to_wire(),
            locate: U16::new(self.locate),
            tracking: U16::new(self.tracking),
            timestamp,
        };
        self.body.write(kind, body)?;
        Ok(needed_bytes)
    }
}

impl<'a> Body<'a> {
    #[inline]
    fn parse(kind: Kind, body: &'a [u8], size: ItchError) -> Result<Body<'a>, ItchError> {
        Ok(match kind {
            Kind::SystemEvent => {
                let raw: &raw::SystemEvent = view(body, size)?;
                Body::SystemEvent(SystemEvent { event: raw.event })
            }
            Kind::StockDirectory => Body::StockDirectory(directory(view(body, size)?)?),
            Kind::AddOrder => Body::AddOrder(add(view(body, size)?, None)?),
            Kind::AddAttributed => {
                let raw: &raw::AddAttributed = view(body, size)?;
                Body::AddOrder(add(&raw.add, Some(raw.attribution))?)
            }
            Kind::OrderExecuted => Body::OrderExecuted(executed(view(body, size)?, None)),
            Kind::ExecutedAtPrice => {
                let raw: &raw::ExecutedAtPrice = view(body, size)?;
                let at = ExecutionPrice { printable: raw.printable, price: price(raw.price) };
                Body::OrderExecuted(executed(&raw.executed, Some(at)))
            }
            Kind::OrderCancel => {
                let raw: &raw::OrderCancel = view(body, size)?;
                let (reference, shares) = (raw.reference.get(), raw.shares.get());
                Body::OrderCancel(OrderCancel { reference, shares })
            }
            Kind::OrderDelete => {
                let raw: &raw::OrderDelete = view(body, size)?;
                Body::OrderDelete(OrderDelete { reference: raw.reference.get() })
            }
            Kind::OrderReplace => {
                let raw: &raw::OrderReplace = view(body, size)?;
                Body::OrderReplace(OrderReplace {
                    original: raw.original.get(),
                    new: raw.new.get(),
                    shares: raw.shares.get(),
                    price: price(raw.price),
                })
            }
            Kind::Trade => {
                let raw: &raw::Trade = view(body, size)?;
                Body::Trade(Trade {
                    reference: raw.reference.get(),
                    side: BookSide::parse(raw.side, HEAD_BYTES + 8)?,
                    shares: raw.shares.get(),
                    stock: Stock::parse(raw.stock, HEAD_BYTES + 13)?,
                    price: price(raw.price),
                    match_number: raw.match_number.get(),
                })
            }
            Kind::CrossTrade => {
                let raw: &raw::CrossTrade = view(body, size)?;
                Body::CrossTrade(CrossTrade {
                    shares: raw.shares.get(),
                    stock: Stock::parse(raw.stock, HEAD_BYTES + 8)?,
                    price: price(raw.price),
                    match_number: raw.match_number.get(),
                    cross_type: raw.cross_type,
                })
            }
            Kind::BrokenTrade => {
                let raw: &raw::BrokenTrade = view(body, size)?;
                Body::BrokenTrade(BrokenTrade { match_number: raw.match_number.get() })
            }
            _ => Body::Other { kind, bytes: body },
        })
    }

    fn write(&self, kind: Kind, to: &mut [u8]) -> Result<(), EncodeError> {
        match self {
            Body::SystemEvent(it) => put(raw::SystemEvent { event: it.event }, kind, to),
            Body::StockDirectory(it) => put(raw_directory(it), kind, to),
            Body::AddOrder(it) => {
                let add = raw::AddOrder {
                    reference: U64::new(it.reference),
                    side: it.side.to_wire(),
                    shares: U32::new(it.shares),
                    stock: it.stock.to_bytes(),
                    price: raw_price(it.price)?,
                };
                match it.attribution {
                    None => put(add, kind, to),
                    Some(attribution) => put(raw::AddAttributed { add, attribution }, kind, to),
                }
            }
            Body::OrderExecuted(it) => {
                let executed = raw::OrderExecuted {
                    reference: U64::new(it.reference),
                    shares: U32::new(it.shares),
                    match_number: U64::new(it.match_number),
                };
                match it.at {
                    None => put(executed, kind, to),
                    Some(ExecutionPrice { printable, price }) => {
                        let price = raw_price(price)?;
                        put(raw::ExecutedAtPrice { executed, printable, price }, kind, to)
                    }
                }
            }
            Body::OrderCancel(it) => {
                let (reference, shares) = (U64::new(it.reference), U32::new(it.shares));
                put(raw::OrderCancel { reference, shares }, kind, to)
            }
            Body::OrderDelete(it) => {
                put(raw::OrderDelete { reference: U64::new(it.reference) }, kind, to)
            }
            Body::OrderReplace(it) => {
                let replace = raw::OrderReplace {
                    original: U64::new(it.original),
                    new: U64::new(it.new),
                    shares: U32::new(it.shares),
                    price: raw_price(it.price)?,
                };
                put(replace, kind, to)
            }
            Body::Trade(it) => {
                let trade = raw::Trade {
                    reference: U64::new(it.reference),
                    side: it.side.to_wire(),
                    shares: U32::new(it.shares),
                    stock: it.stock.to_bytes(),
                    price: raw_price(it.price)?,
                    match_number: U64::new(it.match_number),
                };
                put(trade, kind, to)
            }
            Body::CrossTrade(it) => {
                let cross = raw::CrossTrade {
                    shares: U64::new(it.shares),
                    stock: it.stock.to_bytes(),
                    price: raw_price(it.price)?,
                    match_number: U64::new(it.match_number),
                    cross_type: it.cross_type,
                };
                put(cross, kind, to)
            }
            Body::BrokenTrade(it) => {
                put(raw::BrokenTrade { match_number: U64::new(it.match_number) }, kind, to)
            }
            Body::Other { kind, bytes } => {
                if bytes.len() != to.len() {
                    return Err(EncodeError::Size { kind: *kind, found_bytes: bytes.len() });
                }
                to.copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}

/// A body that was found to be as long as its type's.
#[inline]
fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    body: &[u8],
    size: ItchError,
) -> Result<&T, ItchError> {
    T::ref_from_bytes(body).map_err(|_| size)
}

#[inline]
fn put<T: IntoBytes + Immutable>(raw: T, kind: Kind, to: &mut [u8]) -> Result<(), EncodeError> {
    let found_bytes = raw.as_bytes().len();
    raw.write_to(to).map_err(|_| EncodeError::Size { kind, found_bytes })
}

#[inline]
fn price(price: U32) -> Price {
    Price(price.get().into())
}

#[inline]
fn raw_price(price: Price) -> Result<U32, EncodeError> {
    let max = u32::MAX.into();
    let fits = u32::try_from(price.0);
    fits.map(U32::new).map_err(|_| EncodeError::Number { field: "price", value: price.0, max })
}

#[inline]
fn add(raw: &raw::AddOrder, attribution: Option<[u8; 4]>) -> Result<AddOrder, ItchError> {
    Ok(AddOrder {
        reference: raw.reference.get(),
        side: BookSide::parse(raw.side, HEAD_BYTES + 8)?,
        shares: raw.shares.get(),
        stock: Stock::parse(raw.stock, HEAD_BYTES + 13)?,
        price: price(raw.price),
        attribution,
    })
}

#[inline]
fn executed(raw: &raw::OrderExecuted, at: Option<ExecutionPrice>) -> OrderExecuted {
    OrderExecuted {
        reference: raw.reference.get(),
        shares: raw.shares.get(),
        match_number: raw.match_number.get(),
        at,
    }
}

fn directory(raw: &raw::StockDirectory) -> Result<StockDirectory, ItchError> {
    Ok(StockDirectory {
        stock: Stock::parse(raw.stock, HEAD_BYTES)?,
        market_category: raw.market_category,
        financial_status: raw.financial_status,
        round_lot: raw.round_lot.get(),
        round_lots_only: raw.round_lots_only,
        issue_class: raw.issue_class,
        issue_sub_type: raw.issue_sub_type,
        authenticity: raw.authenticity,
        short_sale_threshold: raw.short_sale_threshold,
        ipo: raw.ipo,
        luld_tier: raw.luld_tier,
        etp: raw.etp,
        etp_leverage: raw.etp_leverage.get(),
        inverse: raw.inverse,
    })
}

fn raw_directory(it: &StockDirectory) -> raw::StockDirectory {
    raw::StockDirectory {
        stock: it.stock.to_bytes(),
        market_category: it.market_category,
        financial_status: it.financial_status,
        round_lot: U32::new(it.round_lot),
        round_lots_only: it.round_lots_only,
        issue_class: it.issue_class,
        issue_sub_type: it.issue_sub_type,
        authenticity: it.authenticity,
        short_sale_threshold: it.short_sale_threshold,
        ipo: it.ipo,
        luld_tier: it.luld_tier,
        etp: it.etp,
        etp_leverage: U32::new(it.etp_leverage),
        inverse: it.inverse,
    }
}
