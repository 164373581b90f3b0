//! The types of messages and their sizes.

/// Declares the types once: letter, size, name for records.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $letter:literal, $bytes:literal, $text:literal;)*) => {
        /// Type of a message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $letter,)*
        }

        impl Kind {
            /// Every type.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The type of that letter.
            #[inline]
            pub const fn from_wire(letter: u8) -> Option<Kind> {
                match letter {
                    $($letter => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// Length of a message of this type, including its letter.
            #[inline]
            pub const fn message_bytes(self) -> usize {
                match self {
                    $(Kind::$name => $bytes,)*
                }
            }

            /// A name for counters and records.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// Start or end of messages, of system hours, of market hours.
    SystemEvent = b'S', 12, "system_event";
    /// An instrument, before the market opens.
    StockDirectory = b'R', 39, "stock_directory";
    /// Trading halted, paused or resumed.
    TradingAction = b'H', 25, "trading_action";
    /// Short sale price test.
    RegSho = b'Y', 20, "reg_sho";
    /// A market maker's state.
    ParticipantPosition = b'L', 26, "participant_position";
    /// Levels of the market-wide circuit breaker.
    BreakerLevels = b'V', 35, "breaker_levels";
    /// A level of the market-wide circuit breaker was breached.
    BreakerStatus = b'W', 12, "breaker_status";
    /// When quoting of a new issue begins.
    IpoQuoting = b'K', 28, "ipo_quoting";
    /// Collars of an auction after a pause.
    AuctionCollar = b'J', 35, "auction_collar";
    /// One market has stopped trading an instrument.
    OperationalHalt = b'h', 21, "operational_halt";
    /// A new order.
    AddOrder = b'A', 36, "add_order";
    /// A new order with the participant's name.
    AddAttributed = b'F', 40, "add_attributed";
    /// An order was executed at its price.
    OrderExecuted = b'E', 31, "order_executed";
    /// An order was executed at another price.
    ExecutedAtPrice = b'C', 36, "executed_at_price";
    /// An order lost some of its shares.
    OrderCancel = b'X', 23, "order_cancel";
    /// An order is gone.
    OrderDelete = b'D', 19, "order_delete";
    /// An order took another's place.
    OrderReplace = b'U', 35, "order_replace";
    /// A trade against an order that was not displayed.
    Trade = b'P', 44, "trade";
    /// A cross.
    CrossTrade = b'Q', 40, "cross_trade";
    /// A trade is taken back.
    BrokenTrade = b'B', 19, "broken_trade";
    /// Imbalance before a cross.
    Imbalance = b'I', 50, "imbalance";
    /// Retail price improvement.
    RetailInterest = b'N', 20, "retail_interest";
    /// Price discovery of a direct listing with a capital raise.
    DirectListing = b'O', 48, "direct_listing";
}

impl Kind {
    /// Letter of the type on the wire.
    #[inline]
    pub const fn to_wire(self) -> u8 {
        self as u8
    }
}
