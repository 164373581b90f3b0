//! Counters of the emulation that the chip itself does not have.

use crate::counts::counts;

counts! {
    /// Counts since the device was created; resets of the chip keep them.
    pub struct Counters {
        /// Frames sent, looped back ones included.
        pub tx_frame_count: u64,
        /// Their bytes, without check sequences.
        pub tx_bytes: u64,
        /// Looks at the transmit ring.
        pub tx_pass_count: u64,
        /// Looks that sent something.
        pub tx_pass_with_frames_count: u64,
        /// Maximum number of frames sent by one pass.
        pub tx_pass_frames_max: u64,
        /// Frames that no wire would carry: longer than [`super::FRAME_BYTES_MAX`], empty, or with a
        /// wrong check sequence from software.
        pub tx_dropped_count: u64,
        /// Frames that ended in a descriptor that was not the device's.
        pub tx_torn_count: u64,
        /// Descriptors that began no frame.
        pub tx_stray_count: u64,
        /// Frames that met a forced collision.
        pub tx_collision_count: u64,
        /// Frames stored, with errors too.
        pub rx_frame_count: u64,
        /// Their bytes as they came from the network.
        pub rx_bytes: u64,
        /// Frames lost for want of a descriptor.
        pub rx_missed_count: u64,
        /// Frames for other stations.
        pub rx_filtered_count: u64,
        /// Frames stored in part for want of a further descriptor.
        pub rx_torn_count: u64,
        /// Frames too short or too long to be any.
        pub rx_malformed_count: u64,
        /// Frames sent or received that stayed in guest memory; all others were copied.
        pub in_place_frame_count: u64,
        /// Frames sent whose checksum the guest left to the host.
        pub tx_checksum_left_count: u64,
        /// Frames sent that the guest left to the host to cut into segments.
        pub tx_super_frame_count: u64,
        /// Frames dropped because their header did not fit them, or left work that was not negotiated.
        pub tx_bad_header_count: u64,
        /// Frames received whose checksum the host left to the guest.
        pub rx_checksum_left_count: u64,
        /// Frames received that were longer than the wire's.
        pub rx_super_frame_count: u64,
        /// Frames received into more than one buffer.
        pub rx_merged_frame_count: u64,
        /// Buffers of those.
        pub rx_merged_buffer_count: u64,
        /// Frames sent by another pair of queues than the first.
        pub tx_other_pair_count: u64,
        /// Frames received by another pair of queues than the first.
        pub rx_other_pair_count: u64,
        /// Commands of the control queue.
        pub control_command_count: u64,
        /// Transfers that no memory answered.
        pub bus_error_count: u64,
    }
}
