//! Figures of real services, each in a network namespace of its own.

mod processes;
mod python;
mod real;
mod server;
