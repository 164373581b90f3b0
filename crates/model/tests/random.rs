//! Random numbers stay the same from version to version: schedules are drawn from them, and a stored seed repeats one.

use wirepath_model::Random;

/// Source: `rand_chacha` 0.9.0, key of the seed in its first eight bytes, streams 0 and 3.
const FIRST: [(u64, [u64; 3]); 2] = [
    (0, [0x9954_165d_0714_dd4b, 0xcd98_77c4_37c4_f6c7, 0xe9a1_a73c_8d9b_9d8d]),
    (3, [0xfa2c_d2be_f32d_dd30, 0xc487_ea97_e948_bffa, 0x03cf_c85f_a348_47a7]),
];

#[test]
fn seed_and_stream_draw_the_numbers_that_they_drew_in_earlier_versions() {
    for (stream, expected) in FIRST {
        let mut random = Random::new(20_261_121, stream);
        assert_eq!(expected.map(|_| random.below(u64::MAX)), expected, "stream {stream}");
    }
}
