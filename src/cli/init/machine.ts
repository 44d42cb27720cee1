import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { asRoot, serviceUserOf, unitOf } from '../../app/installation.ts';
import type { ConfigDraft } from '../../config/edit.ts';
import { type Environment, nearest } from '../../config/source.ts';
import { hasCode, TillsyncError } from '../../core/errors.ts';
import { LANGUAGES, type Language } from '../../health/speech.ts';

/** Returns this machine's time zone; undefined for UTC, which is the default of servers and no shop's zone. */
export function machineTimeZone(): string | undefined {
  let zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? 'UTC';
  try {
    if (zone === 'UTC') zone = readFileSync('/etc/timezone', 'utf8').trim() || 'UTC';
  } catch {
    // Some machines do not have the file.
  }
  return /^(Etc\/)?(UTC|UCT|GMT|Universal|Zulu)$/.test(zone) ? undefined : zone;
}

/** Returns the language of this user's environment; undefined if tillsync does not have texts in it. */
export function machineLanguage({ LC_ALL, LC_MESSAGES, LANG }: Environment): Language | undefined {
  const locale = LC_ALL || LC_MESSAGES || LANG || '';
  return LANGUAGES.find((language) => new RegExp(`^${language}([_.@-]|$)`, 'i').test(locale));
}

/**
 * Sets the time zone in the draft. Throws `usage`, with the zone that was probably meant: `santiago` →
 * `America/Santiago`.
 */
export function setTimeZone(draft: ConfigDraft, zone: string): void {
  try {
    draft.set('orders.timezone', zone);
  } catch (error) {
    if (!hasCode(error, 'config-invalid')) throw error;
    const zones = Intl.supportedValuesOf('timeZone');
    const word = zone.trim().toLowerCase().replace(/ /g, '_');
    const isMeant = (each: string) => each.toLowerCase().split('/').at(-1) === word;
    const meant = zones.find(isMeant) ?? nearest(zone, zones);
    throw new TillsyncError('usage', `"${zone}" is no IANA time zone, such as America/Santiago or UTC.`, {
      ...(meant !== undefined && { hint: `Did you mean ${meant}?` }),
    });
  }
}

/** Throws `config-invalid` if this user may not write the set-up's files. Called before the first question. */
export function refuseUnwritable(...directories: string[]): void {
  for (const path of directories) {
    let at = path;
    while (!existsSync(at) && dirname(at) !== at) at = dirname(at);
    try {
      accessSync(at, constants.W_OK | constants.X_OK);
    } catch {
      throw new TillsyncError('config-invalid', `This user may not write in ${path}; nothing was changed.`, {
        hint: 'Run it as root: {tillsync} init. For a trial of your own: --config FILE --directory DIRECTORY.',
      });
    }
  }
}

interface Address {
  host: string;
  port: number;
}

const OPTIONS = { 'webhook.listen': '--webhook-listen', 'local.listen': '--local-listen' } as const;
export type ListenKey = keyof typeof OPTIONS;

const PORT_MAX = 65_535;
/** Pause before a port is tried again, because another program may have been trying it at the same time. */
const AGAIN_AFTER_MS = 100;

/**
 * Checks that a program can listen at an address. Throws `usage`, with the program that uses the port and a free
 * port. `isOwn` returns whether a process is the service of this configuration.
 */
export async function tryListener(
  key: ListenKey,
  address: Address,
  isOwn: (pid: number, port: number) => Promise<boolean>,
): Promise<void> {
  const { host, port } = address;
  if (port === 0) return;
  let code = await bindFault(address);
  // A lack of permission proves nothing: systemd opens the socket for callbacks as root, and this user may not be
  // root.
  if (code === 'EACCES' && key === 'webhook.listen') return;
  let holder = code === 'EADDRINUSE' ? asRoot(() => holderOf(port)) : undefined;
  if (code === 'EADDRINUSE' && holder === undefined) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS));
    code = await bindFault(address);
    holder = asRoot(() => holderOf(port));
  }
  if (code === undefined || (holder && (await isOwn(holder.pid, port)))) return;
  const shown = host.includes(':') ? `[${host}]` : host;
  if (code === 'EADDRINUSE') {
    const who = holder ? ` (${holder.program}, process ${holder.pid})` : '';
    const free = `${shown}:${await freePort(host, port + 1)}`;
    throw new TillsyncError('usage', `Port ${port} is already used by another program${who}.`, {
      hint: `Choose another with ${OPTIONS[key]}, such as ${free}, or stop that program.`,
    });
  }
  const why = code === 'EADDRNOTAVAIL' ? `${host} is no address of this machine` : code;
  throw new TillsyncError('usage', `Nothing can listen on ${shown}:${port}: ${why}.`, {
    hint: `Choose another with ${OPTIONS[key]}, such as 127.0.0.1:${port}.`,
  });
}

/** Returns the first port from `from` on that is free and in no other configuration file of the directory. */
export async function freePortBeside(file: string, host: string, from: number): Promise<number> {
  const directory = dirname(file);
  const names = existsSync(directory) ? readdirSync(directory) : [];
  const others = names.filter((name) => name.endsWith('.toml') && name !== basename(file));
  const ports = others.flatMap((name) => {
    const text = readFileSync(join(directory, name), 'utf8');
    return [...text.matchAll(/^\s*listen\s*=.*?:(\d+)/gm)].map(([, port]) => Number(port));
  });
  return freePort(host, from, ports);
}

/** Returns two different free ports, for callbacks and local API, that no other company on the machine uses. */
export async function freePortsBeside(
  file: string,
  webhook: Address,
  local: Address,
): Promise<{ webhook: number; local: number }> {
  const first = await freePortBeside(file, webhook.host, webhook.port);
  const second = await freePortBeside(file, local.host, Math.max(local.port, first + 1));
  return { webhook: first, local: second };
}

async function freePort(host: string, from: number, taken: readonly number[] = []): Promise<number> {
  for (let port = from; port <= PORT_MAX; port++) {
    if (!taken.includes(port) && (await bindFault({ host, port })) !== 'EADDRINUSE') return port;
  }
  return 0;
}

/** Returns Node's error code if the address cannot be opened; undefined if it can. */
function bindFault({ host, port }: Address): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** Returns the process that listens on a port, as far as /proc shows it. */
function holderOf(port: number): { pid: number; program: string } | undefined {
  const inodes = new Set(['tcp', 'tcp6'].flatMap((name) => listeningInodes(name, port)));
  if (inodes.size === 0) return undefined;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
        if (inode !== undefined && inodes.has(inode)) {
          // The link `exe` has the program's name; the file `comm` has only the name of a thread.
          return { pid: Number(pid), program: basename(readlinkSync(`/proc/${pid}/exe`)) };
        }
      }
    } catch {
      // The process has ended, or belongs to another user.
    }
  }
  return undefined;
}

/**
 * Matches a listening socket in /proc/net/tcp (proc(5)): number, local address in hex, remote address, state (0A is
 * LISTEN). The tenth column is the inode.
 */
const LISTENING = /^ *\d+: [0-9A-F]+:([0-9A-F]+) \S+ 0A(?: +\S+){5} +(\d+)/gm;

function listeningInodes(table: string, port: number): string[] {
  try {
    return [...readFileSync(`/proc/net/${table}`, 'utf8').matchAll(LISTENING)]
      .filter(([, hex = '']) => Number.parseInt(hex, 16) === port)
      .flatMap(([, , inode]) => inode ?? []);
  } catch {
    return [];
  }
}

/** Names of the systemd units that run tillsync with one configuration file. */
export interface Service {
  unit: string;
  socket: string;
}

/** Returns the units that the package has for this file; undefined if none reads it. */
export function unitsOf(file: string): Service | undefined {
  const unit = unitOf(file);
  return unit === null ? undefined : { unit, socket: unit.replace(/service$/, 'socket') };
}

/** Whether systemd runs on this machine and has the unit. */
export async function isInstalled({ unit }: Service, env: Environment): Promise<boolean> {
  const { text } = await execute(env, 'systemctl', 'show', '--property=LoadState', '--value', unit);
  return text.trim() === 'loaded';
}

/**
 * Returns the path of the socket for the group of the POS, in the directory that the service's unit makes; undefined
 * if no installed service reads the file.
 */
export async function groupSocketOf(file: string, env: Environment): Promise<string | undefined> {
  const service = unitsOf(file);
  if (service === undefined || !(await isInstalled(service, env))) return undefined;
  return `/run/${service.unit.replace(/\.service$/, '')}/api.sock`;
}

/** Whether the unit runs, or is about to. */
export async function isActive({ unit }: Service, env: Environment): Promise<boolean> {
  const { text } = await execute(env, 'systemctl', 'show', '--property=ActiveState', '--value', unit);
  return /^(active|activating|reloading)$/.test(text.trim());
}

/** Whether a listening process belongs to the service: it is the daemon, or systemd for the socket unit. */
export async function isOfService(
  pid: number,
  port: number,
  { unit, socket }: Service,
  env: Environment,
): Promise<boolean> {
  const show = async (property: string, of: string) =>
    (await execute(env, 'systemctl', 'show', `--property=${property}`, '--value', of)).text;
  if (pid === 1) return (await show('Listen', socket)).includes(`:${port} `);
  return (await show('MainPID', unit)).trim() === String(pid);
}

/** Whether the socket unit listens on another port than this one. */
export async function hasMoved({ socket }: Service, port: number, env: Environment): Promise<boolean> {
  const { text } = await execute(env, 'systemctl', 'show', '--property=Listen', '--value', socket);
  return text.trim() !== '' && !text.includes(`:${port} `);
}

/** Returns the commands that apply a new configuration, in order. `moved` is true if callbacks have a new address. */
export function commandsFor({ unit, socket }: Service, moved: boolean): string[][] {
  return [
    // The generator of systemd reads the listen address and the writable directories from the file.
    ['daemon-reload'],
    ['enable', unit],
    // A socket unit can change its address only while its service is stopped. If the address stays, the socket stays
    // open, so that callbacks wait in it during the restart.
    ...(moved ? [['stop', unit, socket]] : []),
    ['start', socket],
    ['restart', unit],
  ];
}

/** Restarts the service and enables it at boot. Returns the failed step; undefined if none failed. */
export async function startAnew(
  service: Service,
  moved: boolean,
  env: Environment,
): Promise<string | undefined> {
  for (const words of commandsFor(service, moved)) {
    const { code, text } = await execute(env, 'systemctl', ...words);
    if (code !== 0) {
      const unit = words.includes(service.socket) ? service.socket : service.unit;
      return `systemctl ${words.join(' ')} failed: ${text.trim()} Look at: journalctl -u ${unit} -n 50`;
    }
  }
  return undefined;
}

/** Restarts the nats-server and its hub. Returns the failed step; undefined if none failed. */
export async function restartHub(
  { unit }: Service,
  server: string,
  env: Environment,
): Promise<string | undefined> {
  for (const words of [
    ['enable', server],
    ['restart', server, unit],
  ]) {
    const { code, text } = await execute(env, 'systemctl', ...words);
    if (code !== 0) return `systemctl ${words.join(' ')} failed: ${text.trim()}`;
  }
  return undefined;
}

/**
 * Adds the service's user to the group, so that the user can give files to the group. Does nothing unless this
 * process is root. Throws `config-invalid`.
 */
export async function joinGroup(group: string, configFile: string, env: Environment): Promise<void> {
  const user = serviceUserOf(configFile)?.name;
  if (process.getuid?.() !== 0 || user === undefined || user === null || user === 'root') return;
  const { code, text } = await execute(env, 'usermod', '--append', '--groups', group, user);
  if (code === 0) return;
  const message = `${user} could not be made a member of ${group}: ${text.trim()}`;
  throw new TillsyncError('config-invalid', message, {
    hint: `Make it one yourself: sudo usermod --append --groups ${group} ${user}`,
  });
}

/** Longest wait for a start, which may first migrate a large mirror. */
const START_LIMIT_MS = 15 * 60_000;

function execute(
  env: Environment,
  program: string,
  ...words: string[]
): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    const options = { env: { ...env }, timeout: START_LIMIT_MS, encoding: 'utf8' as const };
    asRoot(() =>
      execFile(program, words, options, (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
        resolve({ code, text: code === 0 ? stdout : `${stdout}${stderr}` });
      }),
    );
  });
}
