//! The BPF programs in the kernel, between namespaces made for each test.
#![expect(
    unsafe_code,
    reason = "namespaces and raw sockets for the set-up, one reason at each block"
)]

mod attach;
mod faults;
mod filter;
mod generator;
mod lab;
mod verbs;
