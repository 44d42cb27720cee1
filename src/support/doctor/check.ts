import { asTillsyncError, formatCommands, hasCode, sameCommandWithSudo } from '../../core/errors.ts';
import { type Clock, formatDuration } from '../../core/time.ts';
import { FINDINGS, type FindingCheck, type FindingCode } from '../../health/findings.ts';
import type { Verdict } from '../../health/verdict.ts';

/** Every check by its id, which never changes between versions, in order of execution. */
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
  'orders.booked': 'Orders acknowledged',
  catalog: 'Catalogue',
  'catalog.mapped': 'Products with an id of yours',
  changes: 'Changes sent',
  'changes.stock': 'PUT /product/stock',
  'changes.products': 'PUT /product',
  outbox: 'Outbox',
  'stock.differs': 'Stock at the platform',
  'stock.held-back': 'Unbooked orders kept back',
  'stock.safety': 'Safety stock',
  hooks: 'Hooks',
  quarantine: 'Quarantine',
  backup: 'Backups',
  hub: 'Hub and branches',
  'hub.server': 'nats-server',
  'hub.certificate': 'Certificate for branches',
  'hub.way': 'Way between hub and branches',
  'hub.branches': 'Branches',
  alarms: 'Other alarms',
  'alarms.heartbeat': 'Heartbeat',
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
 * - `warn`: works, but somebody should look
 * - `fail`: does not work until somebody acts
 * - `skipped`: could not be checked, or there is nothing to check; the message says why
 */
export type CheckLevel = 'ok' | 'warn' | 'fail' | 'skipped';

/** Result of a check. */
export interface CheckOutcome {
  level: CheckLevel;
  /** One or two sentences on the present state. */
  message: string;
  /** The remedy; null if none is needed. */
  remedy: string | null;
  /** Values for programs, with units in their names and without secrets. */
  facts: Readonly<Record<string, unknown>>;
  /** True if only new tokens help. */
  needsTokens?: boolean;
  /** True if the check was skipped for lack of permission, so that a fault may exist unseen. */
  isHidden?: boolean;
}

/** Runs one check. If it throws, the error becomes the result. */
export type Check = () => CheckOutcome | Promise<CheckOutcome>;

export interface CheckResult extends CheckOutcome {
  id: CheckId;
  title: string;
}

type Facts = CheckOutcome['facts'];

export function well(message: string, facts: Facts = {}): CheckOutcome {
  return outcome('ok', message, null, facts);
}

export function warned(message: string, remedy: string, facts: Facts = {}): CheckOutcome {
  return outcome('warn', message, remedy, facts);
}

export function failed(message: string, remedy: string, facts: Facts = {}): CheckOutcome {
  return outcome('fail', message, remedy, facts);
}

/** Returns the outcome of a check that was not possible, with the reason. */
export function skipped(message: string, remedy: string | null = null, facts: Facts = {}): CheckOutcome {
  return outcome('skipped', message, remedy, facts);
}

function outcome(level: CheckLevel, message: string, remedy: string | null, facts: Facts): CheckOutcome {
  return {
    level,
    message: formatCommands(message),
    remedy: remedy === null ? null : formatCommands(remedy),
    facts,
  };
}

/** Returns the outcome of a check that this user has no permission for. */
export function hidden(message: string, facts: Facts = {}): CheckOutcome {
  return { ...skipped(message, `Run: ${sameCommandWithSudo()}`, facts), isHidden: true };
}

/** Returns the outcome of a check that threw. */
export function outcomeOfError(thrown: unknown): CheckOutcome {
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

/** Returns the age of a time in words, such as `3m ago`. */
export function since(iso: string, clock: Clock): string {
  const ms = clock.nowMs() - Date.parse(iso);
  return Number.isNaN(ms) ? `at ${iso}` : `${formatDuration(Math.max(ms, 0))} ago`;
}

/**
 * Returns an outcome from the status page's findings on the subject of a check, in the same words; undefined if there
 * are none.
 */
export function outcomeOfFindings(
  { findings }: Verdict,
  check: FindingCheck & CheckId,
  facts: Facts = {},
  /** Findings whose detail is left out, because the caller describes it better itself. */
  ...saidBetter: readonly FindingCode[]
): CheckOutcome | undefined {
  const found = findings.filter(({ code }) => FINDINGS[code].check === check);
  if (found.length === 0) return undefined;
  const remedies = new Set(
    found.map(({ code, remedy, cause }) =>
      remedy === ''
        ? 'It ends with what else is wrong here.'
        : cause === undefined
          ? (FINDINGS[code].inDoctor ?? remedy)
          : remedy,
    ),
  );
  const sentences = found.map(({ code, message, detail }) =>
    detail === null || saidBetter.includes(code) ? message : `${message} ${detail}`,
  );
  return {
    level: found.some(({ level }) => level === 'red') ? 'fail' : 'warn',
    message: sentences.join(' '),
    remedy: [...remedies].join(' '),
    facts: { ...facts, findings: found.map(({ code }) => code) },
    ...(found.some(({ code }) => code === 'auth.none' || code === 'auth.locked-out') && {
      needsTokens: true,
    }),
  };
}
