import { asTillsyncError, hasCode } from '../../domain/errors.ts';
import { asTyped, typedAgain } from '../../domain/installation.ts';

/** Every check by its id, which stays the same in every version, in the order they are made. */
export const CHECK_TITLES = {
  config: 'Configuration',
  version: 'Version',
  'storage.disk': 'Disk space',
  'storage.files': 'Files and modes',
  'storage.mirror': 'Mirror',
  'storage.state': 'State',
  'storage.inbox': 'Inbox',
  'storage.readers': 'Readers of the mirror',
  service: 'Service',
  'service.api': 'Local API',
  'service.version': 'Running version',
  tokens: 'Tokens',
  orders: 'Orders by polling',
  catalog: 'Catalogue',
  changes: 'Changes sent',
  'changes.stock': 'PUT /product/stock',
  'changes.products': 'PUT /product',
  outbox: 'Outbox',
  quarantine: 'Quarantine',
  alarms: 'Other alarms',
  'platform.network': 'Way to the platform',
  'platform.limits': 'Limits and blocks',
  'platform.products': 'GET /product/list',
  'platform.product': 'GET /product',
  'webhook.registered': 'Webhook registered',
  'platform.clock': 'Clock',
  'webhook.receiver': 'Callback receiver',
  'webhook.public': 'Public address',
  'webhook.arriving': 'Callbacks arriving',
} as const;
export type CheckId = keyof typeof CHECK_TITLES;
export const CHECK_IDS = Object.keys(CHECK_TITLES) as CheckId[];

/**
 * - `ok`: all is well
 * - `warn`: works, and somebody should look
 * - `fail`: does not work until somebody acts
 * - `skipped`: could not be checked, or there is nothing to check; the message says why
 */
export type CheckLevel = 'ok' | 'warn' | 'fail' | 'skipped';

/** What a check found. */
export interface Outcome {
  level: CheckLevel;
  /** One or two sentences: how it is. */
  message: string;
  /** What to do about it; null when there is nothing to do. */
  remedy: string | null;
  /** For programs, with units in the names; never a secret. */
  facts: Readonly<Record<string, unknown>>;
  /** Whether only new tokens help. */
  needsTokens?: boolean;
  /** Whether it was skipped for want of rights, so that something may be wrong all the same. */
  isHidden?: boolean;
}

export interface Check {
  id: CheckId;
  run(): Outcome | Promise<Outcome>;
}

export interface CheckResult extends Outcome {
  id: CheckId;
  title: string;
}

type Facts = Outcome['facts'];

export function well(message: string, facts: Facts = {}): Outcome {
  return outcome('ok', message, null, facts);
}

export function warned(message: string, remedy: string, facts: Facts = {}): Outcome {
  return outcome('warn', message, remedy, facts);
}

export function failed(message: string, remedy: string, facts: Facts = {}): Outcome {
  return outcome('fail', message, remedy, facts);
}

/** What could not be checked, and why. */
export function skipped(message: string, remedy: string | null = null, facts: Facts = {}): Outcome {
  return outcome('skipped', message, remedy, facts);
}

function outcome(level: CheckLevel, message: string, remedy: string | null, facts: Facts): Outcome {
  return { level, message: asTyped(message), remedy: remedy === null ? null : asTyped(remedy), facts };
}

/** What this user may not look at. */
export function hidden(message: string, facts: Facts = {}): Outcome {
  return { ...skipped(message, `Run: ${typedAgain()}`, facts), isHidden: true };
}

/** The outcome of a check that ended with an error. */
export function outcomeOfError(thrown: unknown): Outcome {
  if (hasCode(thrown, 'aborted')) return skipped('Stopped before it was checked.');
  const {
    code,
    message,
    hint = 'Send support what this command prints with --json.',
  } = asTillsyncError(thrown);
  return {
    level: 'fail',
    message,
    remedy: hint,
    facts: { code },
    ...(code === 'auth-required' && { needsTokens: true }),
  };
}

/** Makes one check; whatever it throws is what it found. */
export async function resultOf({ id, run }: Check): Promise<CheckResult> {
  const title = CHECK_TITLES[id];
  try {
    return { id, title, ...(await run()) };
  } catch (thrown) {
    return { id, title, ...outcomeOfError(thrown) };
  }
}
