import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export type Suite = 'bookworm' | 'trixie';

export interface CleanDebianOptions {
  architecture?: 'amd64' | 'arm64';
  /** Debian packages beyond those that every Debian has. */
  packages: readonly string[];
}

const MIRROR = process.env.TILLSYNC_DEBIAN_MIRROR ?? 'http://deb.debian.org/debian';
const KEPT_IN = '/var/cache/clean-debian';
const SERVICE_MANAGER = ['systemd', 'systemd-sysv', 'dbus'];
/** Programs that the tests of the installed service use. */
const TOOLS = ['curl', 'iproute2', 'man-db', 'procps', 'util-linux-extra'];
const FOREIGN = '/proc/sys/fs/binfmt_misc';

/**
 * Returns the directory with the files of a Debian, which mmdebstrap (`apt-get install -y mmdebstrap`) makes only once;
 * undefined if that is impossible.
 */
export function cleanDebian(
  suite: Suite,
  { architecture = 'amd64', packages }: CleanDebianOptions,
): string | undefined {
  const root = path.join(KEPT_IN, [suite, architecture, ...packages].join('-'));
  if (existsSync(root)) return root;
  if (spawnSync('mmdebstrap', ['--version']).status !== 0) return undefined;
  if (architecture === 'arm64' && !runsArm64()) return undefined;
  mkdirSync(KEPT_IN, { recursive: true });
  // In an emulator, fewer packages save time.
  const variant = architecture === 'arm64' ? 'essential' : 'minbase';
  // An incomplete tree is made again, so dpkg need not sync its files to the disk.
  const what = [
    '--mode=root',
    '--dpkgopt=force-unsafe-io',
    `--architectures=${architecture}`,
    `--variant=${variant}`,
  ];
  const included = packages.length > 0 ? [`--include=${packages.join(',')}`] : [];
  // Parallel test files wait for the first one, which makes the tree.
  const once = '[ -d "$ROOT" ] || { .ci/remove-debian "$ROOT.part" && "$@" && mv "$ROOT.part" "$ROOT"; }';
  const make = ['mmdebstrap', ...what, ...included, suite, `${root}.part`, MIRROR];
  const made = spawnSync('flock', [`${root}.lock`, 'sh', '-c', once, 'sh', ...make], {
    env: { ...process.env, ROOT: root },
    stdio: ['ignore', 'ignore', 'pipe'],
    encoding: 'utf8',
  });
  if (made.status !== 0) {
    console.warn(made.stderr.split('\n').slice(-5).join('\n'));
    return undefined;
  }
  return root;
}

/** Returns the path of a package from Debian's mirror, which is downloaded only once; undefined if that fails. */
export function debianPackage(suite: Suite, name: string): string | undefined {
  const place = path.join(KEPT_IN, 'packages', suite);
  const find = () => readdirSync(place).find((file) => file.startsWith(`${name}_`));
  mkdirSync(path.join(place, 'lists/partial'), { recursive: true });
  const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';
  writeFileSync(path.join(place, 'sources'), `deb [signed-by=${keyring}] ${MIRROR} ${suite} main\n`);
  writeFileSync(path.join(place, 'status'), '');
  // apt uses nothing of this machine's configuration but the keys with which Debian signs.
  const settings = [
    `Dir::Etc::SourceList=${place}/sources`,
    'Dir::Etc::SourceParts=/dev/null',
    'Dir::Etc::Preferences=/dev/null',
    'Dir::Etc::PreferencesParts=/dev/null',
    `Dir::State::Lists=${place}/lists`,
    `Dir::State::Status=${place}/status`,
    `Dir::Cache=${place}`,
    'APT::Sandbox::User=root',
  ].flatMap((setting) => ['-o', setting]);
  const apt = (...words: string[]) => spawnSync('apt-get', ['-qq', ...settings, ...words], { cwd: place });
  if (find() === undefined && apt('update').status === 0) apt('download', name);
  const found = find();
  return found === undefined ? undefined : path.join(place, found);
}

/** Returns the directory with the files of a Debian in which services can run. */
export function debianWithServices(suite: Suite): string | undefined {
  return cleanDebian(suite, { packages: SERVICE_MANAGER });
}

/**
 * Returns the root directory for the tests of the installed service: `/`, or with `TILLSYNC_DEBIAN` that of another
 * Debian, such as `trixie`.
 */
export function usualMachine(): string {
  const suite = process.env.TILLSYNC_DEBIAN;
  if (!suite) return '/';
  const root = cleanDebian(suite as Suite, { packages: [...SERVICE_MANAGER, ...TOOLS] });
  if (!root) throw new Error(`Debian ${suite} cannot be had: see what mmdebstrap said.`);
  return root;
}

/** Returns true if arm64 programs run here. If needed, makes the kernel start them with qemu (`qemu-user-static`). */
export function runsArm64(): boolean {
  if (process.arch === 'arm64') return true;
  const settings = '/usr/lib/binfmt.d/qemu-aarch64.conf';
  if (!existsSync(settings)) return false;
  if (!existsSync(`${FOREIGN}/register`)) {
    spawnSync('mount', ['-t', 'binfmt_misc', 'binfmt_misc', FOREIGN]);
  }
  if (existsSync(`${FOREIGN}/qemu-aarch64`)) return true;
  try {
    writeFileSync(`${FOREIGN}/register`, execFileSync('cat', [settings]));
    return true;
  } catch {
    return false;
  }
}
