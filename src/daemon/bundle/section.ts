import { lstatSync } from 'node:fs';
import { asTillsyncError, TillsyncError } from '../../domain/errors.ts';

/** One file of a bundle. */
export interface Section {
  name: string;
  /** For the person who looks what leaves the shop. */
  what: string;
  /**
   * - a text as it is, or a JSON document, or a list that becomes one JSON document a line
   * - throws what the file then says instead
   */
  make(): SectionContent | Promise<SectionContent>;
  /** May repeat what a customer wrote or is called. */
  mayNamePeople: boolean;
  /** Written by others, so that a secret nobody knows here may stand in it. */
  isForeign?: boolean;
}

export type SectionContent = { text: string } | { document: unknown } | { lines: readonly unknown[] };

/** What a reader learns where something could not be read. */
export function faultOf(error: unknown): { couldNotBeRead: string; hint?: string } {
  const { code, message, hint } = asTillsyncError(error);
  return { couldNotBeRead: `${message} (${code})`, ...(hint !== undefined && { hint }) };
}

/** The value, or why there is none: one thing that cannot be read hides nothing else. */
export function orFault<T>(read: () => T): T | { couldNotBeRead: string } {
  try {
    return read();
  } catch (error) {
    return faultOf(error);
  }
}

/** Throws what a reader understands where a file is not there, or where this user may not see it. */
export function mustExist(path: string): void {
  try {
    lstatSync(path);
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    throw isMissing
      ? new TillsyncError('not-found', `There is no ${path}.`)
      : new TillsyncError('storage-readonly', `This user may not look at ${path}.`, {
          hint: 'Make the bundle as root, or as the user that tillsync runs as.',
        });
  }
}
