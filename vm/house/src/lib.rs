//! The house of virtual machines: paths `vmnic` and `guest`, `wirepath vmnic` and `wirepath guest`.

mod guest;
mod vmnic;

use ::guest::Guest;
use ::vm_prove::{Vm, VmFile};
use ::vmnic::Vmnic;
use house::document::{NamedSchema, read, written};
use house::{Command, House, signals};

use crate::guest::GuestCommand;
use crate::vmnic::VmnicCommand;

/// The house of virtual machines.
pub struct VmHouse;

impl House for VmHouse {
    fn paths(&self) -> Vec<Box<dyn model::Path>> {
        vec![Box::new(Vmnic), Box::new(Guest), Box::new(Vm::new(signals::stop_flag()))]
    }

    fn commands(&self) -> &'static [Command] {
        const { &[Command::new::<GuestCommand>(), Command::new::<VmnicCommand>()] }
    }

    fn documents(&self) -> &'static [NamedSchema] {
        &[
            ("guest run", written::<guest::run::GuestRunDocument<'_>>),
            ("guest selftest", written::<guest::selftest::SelftestDocument>),
            ("prove vm file", read::<VmFile>),
            ("vmnic bench streams", written::<vmnic::StreamsDocument>),
            ("vmnic run", written::<vmnic::VmnicRunDocument>),
        ]
    }
}
