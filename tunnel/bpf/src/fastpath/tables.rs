//! Tables that the slow path fills and the programs read: headers, tunnels and stations; and their counters.

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sys::bpf::{BpfError, wait_for_programs};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::keys::{ends_key, segment_key};
use super::{FAST_COUNTS, FastHeader, FastPath, FastStation, types};
use crate::TunnelCarrier;

/// `place` of a station at the port.
const LOCAL: u32 = u32::MAX;

impl FastPath {
    /// Replaces the header of a tunnel: the idle one of its two slots is written, then made the active
    /// one. `None` leaves the tunnel to the slow path.
    ///
    /// Between two calls for one tunnel, [`Self::wait_for_readers`].
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn set_header(&self, tunnel: u32, header: Option<&FastHeader>) -> Result<(), BpfError> {
        let active_at = offset_of!(types::control, active) + 4 * tunnel as usize;
        let active = self.control.word32(active_at);
        let idle = 1 - (active.load(Ordering::Relaxed) & 1);
        let mut value = types::header::new_zeroed();
        if let Some(header) = header {
            value.ends = u64::from_ne_bytes(header.ends);
            value.fixed = header.fixed;
            value.inherited = header.inherited;
            value.ip_sum = header.ip_sum.into();
            value.inner_bytes_max = header.inner_bytes_max;
            value.len_bytes = header.len_bytes;
            value.vxlan_port = header.vxlan_port;
            value.bytes = header.bytes;
        }
        let slot = 2 * tunnel + idle;
        self.headers.set(&slot.to_ne_bytes(), value.as_bytes())?;
        active.store(idle, Ordering::Release);
        Ok(())
    }

    /// Waits until no program still uses a header that was replaced before.
    pub fn wait_for_readers(&self) {
        wait_for_programs();
    }

    /// Adds a tunnel: its packets are opened by the programs.
    ///
    /// # Errors
    /// [`BpfError::Map`]; the tunnel is then left to the slow path.
    pub fn add_tunnel(
        &self,
        ends: [IpAddr; 2],
        carrier: TunnelCarrier,
        tunnel: u32,
    ) -> Result<(), BpfError> {
        let Some(key) = ends_key(ends, carrier) else { return Ok(()) };
        self.tunnels.set(key.as_bytes(), &tunnel.to_ne_bytes())?;
        self.count_change();
        Ok(())
    }

    /// Removes a tunnel from those that the programs open.
    pub fn remove_tunnel(&self, ends: [IpAddr; 2], carrier: TunnelCarrier) {
        if let Some(key) = ends_key(ends, carrier) {
            // It may not be there.
            let _ = self.tunnels.remove(key.as_bytes());
            self.count_change();
        }
    }

    /// Adds a local end: packets to it take the slow path unless a tunnel matches them. Packets to
    /// other ends go to the host's stack.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn add_segment(&self, local: IpAddr, carrier: TunnelCarrier) -> Result<(), BpfError> {
        self.segments.set(segment_key(local, carrier).as_bytes(), &1_u32.to_ne_bytes())
    }

    /// Removes a local end.
    pub fn remove_segment(&self, local: IpAddr, carrier: TunnelCarrier) {
        let _ = self.segments.remove(segment_key(local, carrier).as_bytes());
    }

    /// Enters or replaces a station. Its frames wait for the slow path to be empty.
    ///
    /// - `key`: see [`fast_station_key`](super::fast_station_key).
    ///
    /// # Errors
    /// [`BpfError::Map`], for example of a full map; its frames then take the slow path.
    pub fn set_station(
        &self,
        key: u64,
        station: &FastStation,
        now_ns: u64,
    ) -> Result<(), BpfError> {
        let mut value = types::station::new_zeroed();
        value.seen_ns = station.seen_ns;
        value.waits_ns = [now_ns.max(1); 2];
        value.place = station.tunnel.unwrap_or(LOCAL);
        value.is_static = station.is_static.into();
        self.stations.set(&key.to_ne_bytes(), value.as_bytes())?;
        self.count_change();
        Ok(())
    }

    /// Removes a station, if it is there.
    pub fn remove_station(&self, key: u64) {
        let _ = self.stations.remove(&key.to_ne_bytes());
        self.count_change();
    }

    /// All stations by key.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn stations(&self) -> Result<Vec<(u64, FastStation)>, BpfError> {
        let entries = self.stations.entries()?;
        Ok(entries
            .filter_map(|(key, value)| {
                let key = u64::from_ne_bytes(key.try_into().ok()?);
                let station = types::station::read_from_bytes(&value).ok()?;
                let tunnel = (station.place != LOCAL).then_some(station.place);
                let is_static = station.is_static != 0;
                Some((key, FastStation { seen_ns: station.seen_ns, tunnel, is_static }))
            })
            .collect())
    }

    /// Counters since loading, over all CPUs, in the order of [`FAST_COUNTS`].
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<[u64; FAST_COUNTS.len()], BpfError> {
        let mut sum = [0; FAST_COUNTS.len()];
        for cpu in self.counts.per_cpu::<types::counts>(0)? {
            sum.iter_mut().zip(cpu.frames).for_each(|(sum, frames)| *sum += frames);
        }
        Ok(sum)
    }
}
