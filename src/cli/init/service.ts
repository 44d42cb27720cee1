import { execFile } from 'node:child_process';
import { basename, dirname } from 'node:path';
import { DEFAULT_CONFIG_FILE, type Environment } from '../../config/config-source.ts';
import { serviceUserOf } from '../../daemon/service/service-user.ts';
import { asRoot } from '../../daemon/storage/storage-user.ts';
import { TillsyncError } from '../../domain/errors.ts';

/** The units that run tillsync with one configuration file. */
export interface Service {
  unit: string;
  socket: string;
}

/** A start may bring a large mirror to a new schema first. */
const START_LIMIT_MS = 15 * 60_000;

/** The units that the package has for this file; undefined for a file that none of them reads. */
export function unitsOf(file: string): Service | undefined {
  if (dirname(file) !== dirname(DEFAULT_CONFIG_FILE) || !file.endsWith('.toml')) return undefined;
  const name = basename(file, '.toml');
  const instance = file === DEFAULT_CONFIG_FILE ? '' : `@${name}`;
  return { unit: `tillsync${instance}.service`, socket: `tillsync${instance}.socket` };
}

/** Whether this machine's systemd runs and has the unit. */
export async function isInstalled({ unit }: Service, env: Environment): Promise<boolean> {
  const { text } = await systemctl(['show', '--property=LoadState', '--value', unit], env);
  return text.trim() === 'loaded';
}

/** Whether a process that listens does so for the service: as its daemon, or as systemd for its socket unit. */
export async function isOfService(
  { pid, port }: { pid: number; port: number },
  { unit, socket }: Service,
  env: Environment,
): Promise<boolean> {
  if (pid !== 1) {
    const { text } = await systemctl(['show', '--property=MainPID', '--value', unit], env);
    return text.trim() === String(pid);
  }
  const { text } = await systemctl(['show', '--property=Listen', '--value', socket], env);
  return text.includes(`:${port} `);
}

/** What brings a new configuration to work, in order; `moved`: callbacks arrive at another address than before. */
export function commandsFor({ unit, socket }: Service, moved: boolean): string[][] {
  return [
    // The generator reads the socket's address from the file.
    ['daemon-reload'],
    ['enable', unit],
    // A socket moves only while its service is stopped; where it stays, callbacks wait in it.
    ...(moved ? [['stop', unit, socket]] : []),
    ['start', socket],
    ['restart', unit],
  ];
}

/** Starts the service anew, and at boot from now on. Says what failed, or undefined when all went well. */
export async function startAnew(
  service: Service,
  moved: boolean,
  env: Environment,
): Promise<string | undefined> {
  for (const words of commandsFor(service, moved)) {
    const { code, text } = await systemctl(words, env);
    if (code !== 0) {
      const unit = words.includes(service.socket) ? service.socket : service.unit;
      return `systemctl ${words.join(' ')} failed: ${text.trim()} Look at: journalctl -u ${unit} -n 50`;
    }
  }
  return undefined;
}

/**
 * Lets the user of the service that reads a configuration file hand files to the group; only root can, and for others
 * nothing happens. Throws `config-invalid`.
 */
export async function joinGroup(group: string, configFile: string, env: Environment): Promise<void> {
  const user = serviceUserOf(configFile)?.name;
  if (process.getuid?.() !== 0 || user === undefined || user === null || user === 'root') return;
  const { code, text } = await execute('usermod', ['--append', '--groups', group, user], env);
  if (code === 0) return;
  throw new TillsyncError(
    'config-invalid',
    `${user} could not be made a member of ${group}: ${text.trim()}`,
    {
      hint: `Make it one yourself: sudo usermod --append --groups ${group} ${user}`,
    },
  );
}

function systemctl(words: string[], env: Environment): Promise<{ code: number; text: string }> {
  return execute('systemctl', words, env);
}

function execute(
  program: string,
  words: string[],
  env: Environment,
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
