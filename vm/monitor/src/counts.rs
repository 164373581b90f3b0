//! Structs of counts of which two readings have a difference.

/// Defines a struct whose fields are all counts, and `since`: their growth from an earlier reading.
macro_rules! counts {
    ($(#[$of_struct:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* pub $field:ident: u64,)*
    }) => {
        $(#[$of_struct])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $($(#[$of_field])* pub $field: u64,)*
        }

        // The monitor alone asks, which runs on x86-64.
        #[cfg(target_arch = "x86_64")]
        impl $name {
            /// Growth from `earlier` to `self`.
            pub(crate) fn since(&self, earlier: &Self) -> Self {
                $name { $($field: self.$field.saturating_sub(earlier.$field),)* }
            }
        }
    };
}
pub(crate) use counts;
