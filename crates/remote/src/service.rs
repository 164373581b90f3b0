//! Sets of typed calls.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the exchange: of its framing, and of every call and answer.
pub const EXCHANGE: u32 = 1;

/// Calls that one kind of far end answers.
pub trait Service {
    /// Name in the greeting, and argument of `wirepath answer`.
    const NAME: &str;
    type Call: Serialize + DeserializeOwned;
    type Answer: Serialize + DeserializeOwned;
}

/// First line of the end that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of the program.
    pub wirepath: String,
    /// [`EXCHANGE`].
    pub exchange: u32,
    /// [`Service::NAME`].
    pub service: String,
}
