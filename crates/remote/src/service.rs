//! Sets of typed calls.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::RemoteError;

/// Version of the exchange: of its framing, and of every call and answer.
pub const EXCHANGE: u32 = 1;

/// Calls that one kind of far end answers.
pub trait Service {
    /// Name in the greeting, and argument of `wirepath answer`.
    const NAME: &str;
    type Call: Serialize + DeserializeOwned + Send + 'static;
    type Answer: Serialize + DeserializeOwned;

    /// True for a call that ends the work under way early, as Ctrl-C does. It takes effect at once, has no answer, and is
    /// not passed on; no work is possible after it.
    fn is_interrupt(_call: &Self::Call) -> bool {
        false
    }
}

/// First line of either end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of the program.
    pub wirepath: String,
    /// [`EXCHANGE`].
    pub exchange: u32,
    /// [`Service::NAME`].
    pub service: String,
}

impl Greeting {
    /// Greeting of this program.
    pub fn own<S: Service>() -> Self {
        Greeting {
            wirepath: env!("CARGO_PKG_VERSION").to_owned(),
            exchange: EXCHANGE,
            service: S::NAME.to_owned(),
        }
    }

    /// - `end`: the end that sent this greeting, for the error.
    ///
    /// Errors: it has another version of the exchange, or another service.
    pub(crate) fn check<S: Service>(&self, end: &str) -> Result<(), RemoteError> {
        let own = Greeting::own::<S>();
        if self.exchange == own.exchange && self.service == own.service {
            return Ok(());
        }
        Err(RemoteError::Version {
            end: end.to_owned(),
            theirs: self.description(),
            ours: own.description(),
        })
    }

    fn description(&self) -> String {
        let Greeting { wirepath, exchange, service } = self;
        let text =
            format!("version {exchange} of the exchange, service {service}, wirepath {wirepath}");
        host::text::printable(&text, 400)
    }
}
