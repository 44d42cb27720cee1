import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import { programVersion } from '../version.ts';
import { type Check, failed, hidden, type Outcome, skipped, warned, well } from './check.ts';
import type { DaemonAnswer } from './running-daemon.ts';
import type { ServiceUnit } from './service-manager.ts';

export interface ServiceChecksOptions {
  /** null when it is not known. */
  running: boolean | null;
  unit: () => Promise<ServiceUnit | null>;
  /** null: it listens on a port that is not known. */
  answer: () => Promise<DaemonAnswer | null>;
}

/** Whether the daemon runs, answers, and is of this version. */
export function serviceChecks({ running, unit, answer }: ServiceChecksOptions): Check[] {
  return [
    { id: 'service', run: async () => serviceOutcome(running, await unit()) },
    { id: 'service.api', run: async () => apiOutcome(running, await answer()) },
    {
      id: 'service.version',
      run: async () => versionOutcome((await answer())?.version ?? null, programVersion()),
    },
  ];
}

export function serviceOutcome(running: boolean | null, unit: ServiceUnit | null): Outcome {
  const facts = { running, unit };
  const name = unit?.name.replace(/\.service$/, '') ?? 'tillsync';
  if (running === null) {
    return hidden('You do not have permission to see whether tillsync runs.', facts);
  }
  if (!running) {
    const { message } = FINDING_SENTENCES['service.down'];
    if (unit === null) return failed(message, 'Start it with: {tillsync} run', facts);
    const why = unit.activeState === 'failed' ? ` systemd says that ${name} failed.` : '';
    const look = unit.activeState === 'inactive' ? '' : '; see why it ended with: {journal}';
    return failed(message + why, `Start it with: {start}${look}`, facts);
  }
  if (unit && unit.activeState !== 'active') {
    const message = `tillsync runs, but not as ${name} of systemd (${unit.activeState}): it does not come back by itself.`;
    return warned(message, 'End it and start it with: {start}', facts);
  }
  if (unit?.unitFileState === 'disabled') {
    const message = 'tillsync runs, but does not start with the machine.';
    return warned(message, 'Have it start with: {enable}', facts);
  }
  return well(unit ? `tillsync runs as ${name} of systemd.` : 'tillsync runs.', facts);
}

export function apiOutcome(running: boolean | null, answer: DaemonAnswer | null): Outcome {
  const facts = { answer };
  if (answer === null)
    return skipped('local.listen picks a free port, so it cannot be found from outside.', null, facts);
  const { url, health, otherStorage, stalled, fault } = answer;
  if (health === 'other') {
    const who = otherStorage === null ? 'Another program' : `The tillsync of ${otherStorage}`;
    const remedy = 'Give local.listen another port in the configuration, then: {restart}';
    return failed(`${who} answers at ${url}, which is local.listen of this one.`, remedy, facts);
  }
  if (health === 'ok') return well(`The status page and the API answer at ${url}.`, facts);
  if (health === 'failing') {
    const message = `tillsync answers at ${url}, but a part of it has stopped: ${stalled.join(', ')}.`;
    return failed(message, 'Restart the service: {restart}', facts);
  }
  if (running === false) return skipped('tillsync does not run.', null, facts);
  const message = `Nothing answers at ${url} (${fault}), where the status page and the API of the POS should be.`;
  return failed(message, 'If local.listen was changed, restart the service: {restart}', facts);
}

export function versionOutcome(running: string | null, own: string): Outcome {
  const facts = { running, own };
  if (running === null) return skipped('No running tillsync tells its version.', null, facts);
  if (running === own) return well(`The service runs ${running}, the same as this command.`, facts);
  const message = `The service still runs ${running}, and ${own} is installed.`;
  return warned(message, 'Restart the service: {restart}', facts);
}
