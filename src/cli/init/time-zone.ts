import { readFileSync } from 'node:fs';
import type { ConfigDraft } from '../../config/config-draft.ts';
import { nearest } from '../../config/config-fault.ts';
import { hasCode, TillsyncError } from '../../domain/errors.ts';

/** The zone of this machine; undefined for UTC, which is how servers are delivered and no shop's. */
export function machineTimeZone(): string | undefined {
  const zone = zoneOfMachine();
  return /^(Etc\/)?(UTC|UCT|GMT|Universal|Zulu)$/.test(zone) ? undefined : zone;
}

function zoneOfMachine(): string {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone !== 'UTC' && zone !== undefined) return zone;
  try {
    return readFileSync('/etc/timezone', 'utf8').trim() || 'UTC';
  } catch {
    return 'UTC';
  }
}

/** Throws `usage` that names the zone that was probably meant. */
export function setTimeZone(draft: ConfigDraft, zone: string): void {
  try {
    draft.set('orders.timezone', zone);
  } catch (error) {
    if (!hasCode(error, 'config-invalid')) throw error;
    const meant = zoneMeant(zone);
    throw new TillsyncError('usage', `"${zone}" is no IANA time zone, such as America/Santiago or UTC.`, {
      ...(meant !== undefined && { hint: `Did you mean ${meant}?` }),
    });
  }
}

/** `santiago` is enough for `America/Santiago`. */
function zoneMeant(text: string): string | undefined {
  const zones = Intl.supportedValuesOf('timeZone');
  const word = text.trim().toLowerCase().replace(/ /g, '_');
  return zones.find((zone) => zone.toLowerCase().split('/').at(-1) === word) ?? nearest(text, zones);
}
