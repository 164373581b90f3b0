# For a Homebrew tap, of the released program; made by `cargo xtask dist`.
class Wirepath < Formula
  desc "@SUMMARY@"
  homepage "@HOME@"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on :linux

  on_intel do
    url "@URL@/wirepath-@VERSION@-x86_64-linux.xz"
    sha256 "@SHA256_x86_64@"
  end
  on_arm do # arm64
    url "@URL@/wirepath-@VERSION@-aarch64-linux.xz" # arm64
    sha256 "@SHA256_aarch64@" # arm64
  end # arm64

  def install
    bin.install Dir["wirepath-*-linux"].first => "wirepath"
    system bin/"wirepath", "man", man1
    generate_completions_from_executable(bin/"wirepath", "completions")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/wirepath --version")
  end
end
