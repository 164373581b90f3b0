//! The device as drivers use it, and as none should.

mod corpus;
mod driver;
mod errors;
mod loopback;
mod property;
mod receive;
mod registers;
mod state;
mod transmit;
