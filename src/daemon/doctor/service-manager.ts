import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';

/** A unit as `systemctl show` tells it. */
export interface ServiceUnit {
  name: string;
  /** `active`, `inactive`, `failed`, `activating` and so on. */
  activeState: string;
  /** `enabled`, `disabled` and so on; empty when systemd does not tell. */
  unitFileState: string;
  mainPid: number | null;
  restarts: number;
}

const TIMEOUT_MS = 5_000;
const PROPERTIES = ['LoadState', 'ActiveState', 'UnitFileState', 'MainPID', 'NRestarts'];

/** The unit as systemd has it; null where there is no unit or no systemd, or it does not know the unit. */
export async function readUnit(name: string | null): Promise<ServiceUnit | null> {
  if (name === null || !existsSync('/run/systemd/system')) return null;
  const text = await new Promise<string>((resolve) => {
    const words = ['show', name, `--property=${PROPERTIES.join(',')}`];
    execFile('systemctl', words, { timeout: TIMEOUT_MS }, (error, stdout) => resolve(error ? '' : stdout));
  });
  return parseUnit(name, text);
}

/** Reads lines such as `ActiveState=active`. */
export function parseUnit(name: string, text: string): ServiceUnit | null {
  const values = new Map(
    text.split('\n').map((line) => {
      const at = line.indexOf('=');
      return [line.slice(0, at), line.slice(at + 1)] as const;
    }),
  );
  if (values.get('LoadState') !== 'loaded') return null;
  const mainPid = Number(values.get('MainPID') ?? 0);
  return {
    name,
    activeState: values.get('ActiveState') ?? '',
    unitFileState: values.get('UnitFileState') ?? '',
    mainPid: mainPid > 0 ? mainPid : null,
    restarts: Number(values.get('NRestarts') ?? 0) || 0,
  };
}
