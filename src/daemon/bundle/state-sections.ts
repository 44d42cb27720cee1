import type { Config } from '../../config/config-type.ts';
import { ENDPOINTS } from '../../domain/platform/limits.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { describeTokens } from '../../platform/token-status.ts';
import { findWalReaders } from '../../store/mirror/wal-readers.ts';
import { openState, type State } from '../../store/state/open-state.ts';
import { openReaders } from '../reading/readers.ts';
import { storedVerdict } from '../reading/stored-verdict.ts';
import { RUNNING } from '../service/running-mark.ts';
import { lookIntoInbox } from '../storage/look-into-inbox.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import type { StoragePaths } from '../storage/storage-directory.ts';
import { plainUrl } from './config-sections.ts';
import { mustExist, orFault, type Section } from './section.ts';

export interface StateSectionsOptions {
  paths: StoragePaths;
  config: Config | undefined;
  clock: Clock;
  signal: AbortSignal;
}

/** What the processes of the company share, and what follows for the shop. */
export function stateSections({ paths, config, clock, signal }: StateSectionsOptions): Section[] {
  const sections: Section[] = [
    {
      name: 'state.json',
      what: 'whether tillsync runs, times of the tokens, waits and blocks of the platform; no token',
      mayNamePeople: true,
      make: async () => ({ document: await stateOf(paths.state, config, clock) }),
    },
    {
      name: 'inbox.json',
      what: 'how much the POS handed over by SQL that was not taken yet',
      mayNamePeople: false,
      make: async () => ({ document: await inboxOf(paths.inbox, clock, signal) }),
    },
    {
      name: 'mirror-readers.json',
      what: 'programs that read the mirror at this moment',
      mayNamePeople: false,
      make: () => ({ document: findWalReaders(paths.mirror) }),
    },
  ];
  if (config !== undefined) {
    sections.unshift({
      name: 'verdict.json',
      what: 'what is wrong and what to do, as the status page says it',
      mayNamePeople: true,
      make: async () => ({ document: await verdictNow(config, clock) }),
    });
  }
  return sections;
}

async function verdictNow(config: Config, clock: Clock): Promise<unknown> {
  const readers = await openReaders({ config, clock });
  try {
    const orNull = <T>(read: () => T): T | null => {
      try {
        return read();
      } catch {
        return null;
      }
    };
    const tokens = orNull(() => readers.tokens());
    const running = orNull(() => readers.isRunning());
    return storedVerdict({ readers, config, clock, tokens, running });
  } finally {
    await readers.close();
  }
}

const CALLBACKS = 200;

async function stateOf(path: string, config: Config | undefined, clock: Clock): Promise<unknown> {
  mustExist(path);
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    return {
      running: orFault(() => state.leases.isHeld(RUNNING)),
      auth: orFault(() => authOf(state, clock)),
      webhook: orFault(() => webhookOf(state)),
      callbacks: orFault(() => state.callbacks.list(0, CALLBACKS)),
      ...(config && {
        waits: orFault(() => state.ledger.waits(config.limits)),
        blocks: ENDPOINTS.map((endpoint) => ({
          endpoint,
          history: orFault(() => state.ledger.blockHistory(endpoint, config.limits)),
        })),
      }),
    };
  } finally {
    state.close();
  }
}

function authOf({ tokens }: State, clock: Clock): unknown {
  const pair = tokens.read();
  return describeTokens(
    pair,
    tokens.readIntent()?.startedAtMs ?? null,
    clock.nowMs() + (pair?.clockSkewMs ?? 0),
  );
}

/** Which secrets there are, and until when; none of them. */
function webhookOf({ webhook }: State): unknown {
  const { current, previous, pending, previousUntilMs, registered } = webhook.read();
  return {
    rotatedHere: current !== null,
    previousStillAccepted: previous !== null,
    previousUntilMs,
    rotationUnfinished: pending.length > 0,
    registeredAddress: registered && plainUrl(registered.callbackUrl),
  };
}

async function inboxOf(path: string, clock: Clock, signal: AbortSignal): Promise<unknown> {
  mustExist(path);
  return lookIntoInbox({ path, clock, signal }, (ask) => ask({ do: 'health' }));
}
