import path from 'node:path';
import { openState } from '../../src/app/state.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { SigningKey } from '../../src/db/signing-keys.ts';

/** Stores the key of a recovery phrase in a storage directory, as the command that makes the phrase does. */
export function keepSigningKey(storage: string, key: SigningKey): void {
  const state = openState({ path: path.join(storage, 'state.db'), clock: systemClock });
  state.signingKeys.keep(key);
  state.close();
}
