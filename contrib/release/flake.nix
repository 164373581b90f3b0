# For Nix, of the released program; made by `cargo xtask dist`.
{
  description = "@SUMMARY@";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { nixpkgs, ... }:
    let
      version = "@VERSION@";
      programs = {
        x86_64-linux = { machine = "x86_64"; sha256 = "@SHA256_x86_64@"; };
        aarch64-linux = { machine = "aarch64"; sha256 = "@SHA256_aarch64@"; }; # arm64
      };
      package = system: { machine, sha256 }:
        let pkgs = nixpkgs.legacyPackages.${system}; in
        pkgs.stdenvNoCC.mkDerivation {
          pname = "wirepath";
          inherit version;
          src = pkgs.fetchurl {
            url = "@URL@/wirepath-${version}-${machine}-linux.xz";
            inherit sha256;
          };
          nativeBuildInputs = [ pkgs.installShellFiles ];
          dontUnpack = true;
          dontStrip = true;
          installPhase = ''
            runHook preInstall
            mkdir -p $out/bin
            xz --decompress --stdout $src >$out/bin/wirepath
            chmod 755 $out/bin/wirepath
            $out/bin/wirepath man pages
            installManPage pages/*
            installShellCompletion --cmd wirepath \
              --bash <($out/bin/wirepath completions bash) \
              --zsh <($out/bin/wirepath completions zsh) \
              --fish <($out/bin/wirepath completions fish)
            runHook postInstall
          '';
          meta = {
            homepage = "@HOME@";
            license = nixpkgs.lib.licenses.asl20;
            mainProgram = "wirepath";
            platforms = builtins.attrNames programs;
          };
        };
    in
    { packages = builtins.mapAttrs (system: program: { default = package system program; }) programs; };
}
