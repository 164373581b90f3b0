//! Returns each frame that arrives at queue 0 of an interface, with its addresses swapped, and prints what the
//! driver tells of it: `echo IF [FRAMES]`. No other frame of the queue reaches the host.
#![expect(clippy::print_stdout, reason = "an example for the terminal")]

use std::error::Error;
use std::os::fd::AsFd;
use std::time::Duration;

use wirepath_xdp::{Bind, Frames, Redirect, Socket, Then, XdpMode};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let ifname = arguments.next().ok_or("usage: echo IF [FRAMES]")?;
    let most = arguments.next().map_or(Ok(u64::MAX), |count| count.parse())?;
    let bind = Bind::to_queue(&ifname, 0)?;
    let (ifindex, queues) = (bind.ifindex, bind.queues);
    let frames = Frames::allocate(2048, 4096, 1)?.remove(0);
    let mut socket = Socket::open(frames, bind, None)?;
    let mut program = Redirect::load_with_metadata(ifindex, queues, false)?;
    program.insert(0, socket.as_fd())?;
    program.attach(ifindex, XdpMode::Native)?;
    let key = program.metadata_key().ok_or("the program has no metadata")?;
    println!("zero-copy: {}", socket.is_zero_copy());
    let mut echoed = 0;
    while echoed < most {
        let taken = socket.rx_take_with_metadata(key, 64, |metadata, frame, _| {
            println!("{} bytes, {metadata:?}", frame.len());
            let Some((to, from)) = frame.get_mut(..12).map(|macs| macs.split_at_mut(6)) else {
                return Then::Release;
            };
            to.swap_with_slice(from);
            Then::Send
        });
        if taken == 0 {
            socket.wait(Duration::from_millis(100))?;
            continue;
        }
        echoed += taken as u64;
        while socket.tx_pending() > 0 {
            socket.kick()?;
        }
        socket.tx_reap();
        socket.rx_post();
    }
    Ok(())
}
