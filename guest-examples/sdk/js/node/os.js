export const EOL = "\n";
export const hostname = () => "handler";
export const platform = () => "wasi";
export const type = () => "wasi";
export const release = () => "";
export const arch = () => "wasm32";
export const tmpdir = () => "/tmp";
export default { EOL, arch, hostname, platform, release, tmpdir, type };
