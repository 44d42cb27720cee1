import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readPackage } from '../../../config/package/read-package.ts';
import { limitMs } from '../../support/shared-config.ts';
import { usualMachine } from './clean-debian.ts';

export interface RunResult {
  code: number;
  /** Standard output and error. */
  text: string;
}

const ENVIRONMENT = [
  'env',
  '-i',
  'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
  'HOME=/root',
  'DEBIAN_FRONTEND=noninteractive',
];
const ROOT = path.resolve(import.meta.dirname, '../../..');
const COMMAND_LIMIT_MS = limitMs(120_000);
const BOOT_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 200;

/** A throwaway Debian on this machine, in which packages can be installed and services run. Needs root. */
export class Machine {
  readonly #process: ChildProcess;
  readonly #place: string;
  readonly #neighbours: ChildProcess[] = [];

  private constructor(process: ChildProcess, place: string) {
    this.#process = process;
    this.#place = place;
  }

  /**
   * Starts a machine. `root` is the directory of its files; without it the machine has the files of `usualMachine` and
   * this checkout. `file` is a file or directory that is put into its /root.
   */
  static async start(kind: 'systemd' | 'plain', { root = '', file = '' } = {}): Promise<Machine> {
    const place = mkdtempSync(path.join(tmpdir(), 'tillsync-machine-'));
    const init = path.join(import.meta.dirname, 'machine-init.sh');
    const namespaces = [
      '--mount',
      '--propagation',
      'private',
      '--pid',
      '--net',
      '--ipc',
      '--uts',
      '--cgroup',
    ];
    const child = spawn(
      'unshare',
      [
        ...namespaces,
        '--fork',
        '--kill-child',
        'sh',
        init,
        place,
        kind,
        root || usualMachine(),
        file,
        root ? '' : ROOT,
      ],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const [first] = await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
    if (!String(first).startsWith('ready')) throw new Error(`The machine did not start: ${String(first)}`);
    child.stdout.resume();
    const machine = new Machine(child, place);
    if (kind === 'systemd') {
      machine.until("systemctl is-system-running 2>/dev/null | grep -Eq 'running|degraded'", BOOT_LIMIT_MS);
    }
    return machine;
  }

  /** Runs a shell command as root. Throws if it fails, with its output, and for `systemctl` also with the journal. */
  run(command: string): string {
    const { code, text } = this.try(command);
    if (code === 0) return text;
    const journal = command.includes('systemctl') ? this.try('journalctl -n 40 --no-pager -o cat').text : '';
    throw new Error([`${command}\nended with ${code}:\n${text}`, journal].join('\n').trim());
  }

  /** Repeats a shell command until it ends with 0; throws after `quietMs`, or later on a slow machine. */
  until(condition: string, quietMs = 20_000): void {
    const looks = Math.ceil(limitMs(quietMs) / LOOK_EVERY_MS);
    this.run(
      `for i in $(seq ${looks}); do { ${condition}; } && exit 0; sleep ${LOOK_EVERY_MS / 1_000}; done; exit 1`,
    );
  }

  try(command: string): RunResult {
    const { status, stdout, stderr } = spawnSync('nsenter', this.#enter(command), {
      encoding: 'utf8',
      timeout: COMMAND_LIMIT_MS,
    });
    return { code: status ?? -1, text: `${stdout}${stderr}`.trim() };
  }

  /** Starts a shell command and returns its output once it has ended. */
  async background(command: string): Promise<string> {
    const child = spawn('nsenter', this.#enter(command), { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    await once(child, 'close');
    return text;
  }

  /**
   * Runs a program of the real machine in the network of the throwaway one; returns its output once it matches `ready`.
   */
  async neighbour([program = '', ...words]: readonly string[], ready: RegExp): Promise<string> {
    const child = spawn('nsenter', ['-t', String(this.#process.pid), '-n', program, ...words], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#neighbours.push(child);
    child.stdout.setEncoding('utf8');
    let text = '';
    for await (const part of child.stdout.iterator({ destroyOnReturn: false })) {
      text += part;
      if (ready.test(text)) break;
    }
    if (!ready.test(text)) throw new Error(`${program} ended without ${ready}:\n${text}`);
    child.stdout.resume();
    return text;
  }

  /** Connects another machine by a network cable and gives both ends an address. */
  cable(other: Machine, [own, others]: readonly [string, string]): void {
    const [here, there] = [this, other].map((machine) => String(machine.#process.pid)) as [string, string];
    const ip = (pid: string, words: string) =>
      execFileSync('nsenter', ['-t', pid, '-n', 'ip', ...words.split(' ')]);
    ip(here, `link add name cable type veth peer name cable netns ${there}`);
    for (const [pid, address] of [
      [here, own],
      [there, others],
    ] as const) {
      ip(pid, `address add ${address} dev cable`);
      ip(pid, 'link set cable up');
    }
  }

  async stop(): Promise<void> {
    for (const neighbour of this.#neighbours) neighbour.kill('SIGKILL');
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await ended;
    rmSync(this.#place, { recursive: true, force: true });
  }

  #enter(command: string): string[] {
    const { pid } = this.#process;
    const first = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return [
      '-t',
      first,
      '-m',
      '-p',
      '-n',
      '-C',
      '-i',
      '-u',
      '-r',
      '-w',
      ...ENVIRONMENT,
      'bash',
      '-c',
      command,
    ];
  }
}

/** Returns the package that `npm run package` wrote. */
export function builtPackage(architecture = 'amd64'): string {
  return built('tillsync', architecture);
}

/** Returns the package with the unit of a hub's nats-server. */
export function builtHubPackage(): string {
  return built('tillsync-hub', 'all');
}

function built(name: string, architecture: string): string {
  const { version } = readPackage(ROOT);
  return path.join(ROOT, 'dist', `${name}_${version}_${architecture}.deb`);
}

/** Makes a copy of the package with another version and with files that `change` has edited; returns its path. */
export function laterPackage(deb: string, version: string, change: (tree: string) => void): string {
  const place = mkdtempSync(path.join(tmpdir(), 'tillsync-later-'));
  const tree = path.join(place, 'tree');
  execFileSync('dpkg-deb', ['-R', deb, tree]);
  execFileSync('sed', ['-i', `s/^Version: .*/Version: ${version}/`, path.join(tree, 'DEBIAN/control')]);
  change(tree);
  const [name, , kind] = path.basename(deb).split('_');
  const later = path.join(place, `${name}_${version}_${kind}`);
  execFileSync('dpkg-deb', ['--root-owner-group', '-Znone', '--build', tree, later], { stdio: 'ignore' });
  rmSync(tree, { recursive: true });
  return later;
}
