//! TotalView-ITCH 5.0: every order of a market.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | u8 type | [`Kind`]: gives the size |
//! | 1 | u16 stock locate | index of the instrument for the day |
//! | 3 | u16 tracking | |
//! | 5 | u48 timestamp | nanoseconds since midnight |
//! | 11 | body | |
//!
//! All big-endian; prices have four decimals. Orders, executions, trades, crosses, system events
//! and the directory are decoded; of the other types, which are about state rather than about a
//! book, the size is checked and the body is left as bytes.
//!
//! Source: Nasdaq, TotalView-ITCH 5.0 specification.

mod error;
mod kind;
mod message;
mod raw;
#[cfg(test)]
mod tests;
mod value;

pub use error::{EncodeError, ItchError};
pub use kind::Kind;
pub use message::{
    AddOrder, Body, BrokenTrade, CrossTrade, ExecutionPrice, MAX_BYTES, Message, OrderCancel,
    OrderDelete, OrderExecuted, OrderReplace, StockDirectory, SystemEvent, Trade, order_reference,
};
pub use value::{BookSide, Stock, Timestamp};

pub use crate::price::Price;
