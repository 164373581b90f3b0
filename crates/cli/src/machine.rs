//! Description of the machine, stored with each result.

use lab::describe_machine;
use model::{Machine, Session};

/// Describes this machine without an interface.
pub(crate) fn here() -> Machine {
    describe_machine(String::new())
}

/// Describes the machines of both ends of a session.
pub(crate) fn of(session: &dyn Session) -> Machine {
    let far = session.far_machine().map(Box::new);
    Machine { far, ..describe_machine(session.nic()) }
}
