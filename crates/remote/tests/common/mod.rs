//! A service for tests.

use serde::{Deserialize, Serialize};
use wirepath_remote::Service;

#[derive(Debug)]
pub(crate) enum Echo {}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EchoCall {
    Say(String),
    Interrupt,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EchoAnswer {
    Said(String),
}

impl Service for Echo {
    const NAME: &str = "echo";
    type Call = EchoCall;
    type Answer = EchoAnswer;

    fn is_interrupt(call: &EchoCall) -> bool {
        *call == EchoCall::Interrupt
    }
}
