//! Memory layout of messages.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::kind::Kind;

/// Declares the parts and checks each body's size against its type's.
macro_rules! raw {
    ($($name:ident $(of $kind:ident)? { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub(super) struct $name {
                $(pub(super) $field: $type,)*
            }
            $(const _: () = assert!(
                HEAD_BYTES + core::mem::size_of::<$name>() == Kind::$kind.message_bytes()
            );)?
        )*
    };
}

/// Bytes before every body.
pub(super) const HEAD_BYTES: usize = core::mem::size_of::<Head>();

raw! {
    Head { kind: u8, locate: U16, tracking: U16, timestamp: [u8; 6] }
    SystemEvent of SystemEvent { event: u8 }
    StockDirectory of StockDirectory {
        stock: [u8; 8],
        market_category: u8,
        financial_status: u8,
        round_lot: U32,
        round_lots_only: u8,
        issue_class: u8,
        issue_sub_type: [u8; 2],
        authenticity: u8,
        short_sale_threshold: u8,
        ipo: u8,
        luld_tier: u8,
        etp: u8,
        etp_leverage: U32,
        inverse: u8,
    }
    AddOrder of AddOrder { reference: U64, side: u8, shares: U32, stock: [u8; 8], price: U32 }
    AddAttributed of AddAttributed { add: AddOrder, attribution: [u8; 4] }
    OrderExecuted of OrderExecuted { reference: U64, shares: U32, match_number: U64 }
    ExecutedAtPrice of ExecutedAtPrice { executed: OrderExecuted, printable: u8, price: U32 }
    OrderCancel of OrderCancel { reference: U64, shares: U32 }
    OrderDelete of OrderDelete { reference: U64 }
    OrderReplace of OrderReplace { original: U64, new: U64, shares: U32, price: U32 }
    Trade of Trade {
        reference: U64,
        side: u8,
        shares: U32,
        stock: [u8; 8],
        price: U32,
        match_number: U64,
    }
    CrossTrade of CrossTrade {
        shares: U64,
        stock: [u8; 8],
        price: U32,
        match_number: U64,
        cross_type: u8,
    }
    BrokenTrade of BrokenTrade { match_number: U64 }
}
