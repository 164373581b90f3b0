//! Each cause is planted and named with its evidence; its twin, the same scene without the fault, is silent.
//!
//! With `WIREPATH_CAUSES_TABLE=FILE`, each test adds its row to the table of causes: cause, how it was planted, reader,
//! severity, and what the twin said.

mod scene;

mod addresses;
mod cpu;
mod filters;
mod links;
mod mtu;
mod observed;
mod process;
mod tcp;
mod tcp_paths;
mod udp;
