import { closeSync, openSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { ConfigFault } from '../../config/config-fault.ts';
import { unitOf } from '../installation.ts';
import { asUser } from '../storage/storage-user.ts';
import { groupName, serviceUserOf, userName } from './service-user.ts';

/** A configuration file as its service finds it. */
export interface ServiceView {
  /** Such as `tillsync.service`. */
  unit: string;
  user: string;
  /** Whether that user can read the file; null: only root can try. */
  canRead: boolean | null;
  faults: ConfigFault[];
}

/** Tries the file as the user of the service that reads it; undefined where none does. */
export function viewOfService(configFile: string): ServiceView | undefined {
  const file = resolve(configFile);
  const unit = unitOf(file);
  const user = serviceUserOf(file);
  if (unit === null || user === undefined) return undefined;
  const name = user.name ?? String(user.uid);
  const view = { unit, user: name, faults: [] };
  if (process.geteuid?.() === user.uid) return { ...view, canRead: opens(file) };
  if (process.geteuid?.() !== 0 || statSync(file, { throwIfNoEntry: false }) === undefined) {
    return { ...view, canRead: null };
  }
  const canRead = user.uid === 0 || asUser(user, () => opens(file));
  if (canRead) return { ...view, canRead };
  const { mode, uid, gid } = statSync(file);
  const is = `mode ${(mode & 0o7777).toString(8).padStart(4, '0')}, ${userName(uid)}:${groupName(gid)}`;
  const found = `a file that the service user ${name} cannot read (${is})`;
  const mended = `sudo chgrp ${groupName(user.gid)} ${file} && sudo chmod 0640 ${file}`;
  return {
    ...view,
    canRead,
    faults: [{ origin: file, key: '', found, allowed: `one that it can read: ${mended}` }],
  };
}

function opens(file: string): boolean {
  try {
    closeSync(openSync(file, 'r'));
    return true;
  } catch {
    return false;
  }
}
