import { asTyped } from '../../domain/installation.ts';
import type { Cli } from '../cli.ts';
import type { InitReport } from './report.ts';
import { commandsFor, isInstalled, startAnew, unitsOf } from './service.ts';
import type { SetUp } from './set-up.ts';
import type { Terminal } from './terminal.ts';

export interface WorkOptions {
  cli: Cli;
  setUp: SetUp;
  /** Not there: nobody is asked. */
  terminal: Terminal | undefined;
  /** Callbacks arrive at another address than before. */
  moved: boolean;
  mayStart: boolean;
}

/** Starts the installed service with the new file, or says what a person has to run. */
export async function bringToWork(options: WorkOptions): Promise<Pick<InitReport, 'service' | 'next'>> {
  const { cli, setUp, terminal, moved, mayStart } = options;
  const { file } = setUp.draft;
  const service = unitsOf(file);
  if (service === undefined || !(await isInstalled(service, cli.env))) {
    if (await setUp.isRunning()) {
      await setUp.tryReceiver();
      return { service: null, next: ['Restart the tillsync that is running, so that it reads the file.'] };
    }
    return { service: null, next: [asTyped('{tillsync} run')] };
  }
  const { unit } = service;
  const isRoot = process.getuid?.() === 0;
  const isWanted =
    mayStart && isRoot && (terminal === undefined || (await terminal.yes(await question(setUp, unit), true)));
  if (!isWanted) {
    const next = commandsFor(service, moved).map((words) => `systemctl ${words.join(' ')}`);
    return { service: { unit, started: false }, next };
  }
  const fault = await startAnew(service, moved, cli.env);
  if (fault !== undefined) {
    setUp.note({ what: 'service', subject: unit, ok: false, message: fault });
    return { service: { unit, started: false }, next: [`journalctl -u ${unit} -n 50`] };
  }
  setUp.note({ what: 'service', subject: unit, ok: true, message: 'started' });
  await setUp.tryReceiver();
  return { service: { unit, started: true }, next: [] };
}

async function question(setUp: SetUp, unit: string): Promise<string> {
  return (await setUp.isRunning()) ? `Restart ${unit} now, so that this holds?` : `Start ${unit} now?`;
}
