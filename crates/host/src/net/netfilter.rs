//! Empty chains of nftables, for measuring the cost of hooks.

use netlink_bindings::nftables::{self, Nfgenmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

use super::error::{NetError, ask};

/// Hooks of IPv4 packets.
///
/// Source: linux/netfilter.h, enum nf_inet_hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// Packets that this host sends, such as the outer packets of a tunnel.
    Output = 3,
    /// Packets that are about to leave on an interface.
    PostRouting = 4,
}

/// Subsystem of nfnetlink that a batch is for.
///
/// Source: linux/netfilter/nfnetlink.h, NFNL_SUBSYS_NFTABLES.
const SUBSYSTEM: u16 = 10;
const NF_ACCEPT: u32 = 1;

/// Creates a table in the calling thread's namespace with `count` chains for each hook. They have no
/// rules and accept all packets.
pub fn create_empty_hooks(table: &str, hooks: &[Hook], count: u32) -> Result<(), NetError> {
    ask(format!("making the nftables table {table}"), |socket| {
        let generation = generation(socket)?;
        let mut batch = nftables::Chained::new(socket.reserve_seq(hooks.len() as u32 * count + 3));
        batch.request().op_batch_begin_do(&batch_header()).encode().push_genid(generation);
        batch
            .request()
            .set_create()
            .op_newtable_do(&header())
            .encode()
            .push_name_bytes(table.as_bytes());
        for hook in hooks {
            for number in 0..count {
                let name = format!("{hook:?}-{number}");
                batch
                    .request()
                    .set_create()
                    .op_newchain_do(&header())
                    .encode()
                    .push_table_bytes(table.as_bytes())
                    .push_name_bytes(name.as_bytes())
                    .push_type(c"filter")
                    .push_policy(NF_ACCEPT)
                    .nested_hook()
                    .push_num(*hook as u32)
                    .push_priority(number as i32)
                    .end_nested();
            }
        }
        batch.request().op_batch_end_do(&batch_header());
        socket.request_chained(&batch.finalize())?.recv_all()
    })
}

pub fn delete_table(table: &str) -> Result<(), NetError> {
    ask(format!("removing the nftables table {table}"), |socket| {
        let generation = generation(socket)?;
        let mut batch = nftables::Chained::new(socket.reserve_seq(3));
        batch.request().op_batch_begin_do(&batch_header()).encode().push_genid(generation);
        batch.request().op_deltable_do(&header()).encode().push_name_bytes(table.as_bytes());
        batch.request().op_batch_end_do(&batch_header());
        socket.request_chained(&batch.finalize())?.recv_all()
    })
}

fn generation(socket: &mut NetlinkSocket) -> Result<u32, ReplyError> {
    let request = nftables::Request::new().op_getgen_do(&Nfgenmsg::new());
    let mut reply = socket.request(&request)?;
    let (_, attributes) = reply.recv_one()?;
    Ok(attributes.get_id()?)
}

fn batch_header() -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.set_res_id(SUBSYSTEM);
    header
}

fn header() -> Nfgenmsg {
    Nfgenmsg { nfgen_family: libc::AF_INET as u8, ..Nfgenmsg::new() }
}
