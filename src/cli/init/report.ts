import type { Config } from '../../config/config-type.ts';
import type { Replaced } from '../../config/replace-file.ts';
import { printable } from '../texts/printable.ts';
import { fields } from '../texts/table.ts';
import type { Check } from './set-up.ts';

/** What a set-up did, as its `--json` document has it. */
export interface InitReport extends Replaced {
  file: string;
  checks: readonly Check[];
  /** How orders come in. */
  orders: 'callbacks' | 'polling';
  callbackUrl: string | null;
  /** The secret of callbacks; null: none is needed. */
  webhookSecret: 'made' | 'kept' | null;
  service: { unit: string; started: boolean } | null;
  statusPage: string | null;
  /** What is left to do, in order; empty: nothing. */
  next: readonly string[];
}

/** Where the status page is, for a browser on this machine; null while its port is not known. */
export function statusPageOf({ local: { host, port } }: Config): string | null {
  if (port === 0) return null;
  const isAny = host === '0.0.0.0' || host === '::';
  const name = isAny ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return `http://${name}:${port}/`;
}

/** All answers once more, before they are written. */
export function summaryText(config: Config, branches: Config['branches']): string {
  const { platform, webhook, orders, storage } = config;
  const callbacks = webhook.enabled
    ? `${webhook.callbackUrl || 'no public address'}, arriving at ${webhook.host}:${webhook.port}`
    : 'none; orders come by polling';
  const table = fields([
    ['  platform', platform.baseUrl],
    ['  branches', branches.map(branchName).join(', ') || 'none'],
    ['  callbacks', callbacks],
    ['  time zone', orders.timezone],
    ['  group of the POS', storage.group || 'as it is'],
    ['  status page', statusPageOf(config) ?? 'at a port that is chosen at each start'],
  ]);
  return `\nYour answers:\n${table.trimEnd()}`;
}

/** What is allowed and probably not meant. */
export function warningsOf({ webhook: { enabled, callbackUrl, path } }: Config): string[] {
  if (!enabled || callbackUrl === '') return [];
  const { pathname } = new URL(callbackUrl);
  if (pathname === path) return [];
  return [
    `The callback address ends in ${pathname}, but tillsync answers at ${path}. Unless a proxy changes the path, use: ${new URL(path, callbackUrl)}`,
  ];
}

/** A branch by the ids that are known. */
export function branchName({ subsidiaryId, externalId }: Config['branches'][number]): string {
  return [subsidiaryId, externalId].filter((id) => id !== undefined).join(' / ');
}

/** One try: `ok  address https://…: reached`. */
export function checkText({ what, subject, ok, message }: Check): string {
  const mark = ok === null ? '--' : ok ? 'ok' : '!!';
  return printable(`${mark}  ${what}: ${subject}: ${message}`);
}

export function reportText(report: InitReport): string {
  const { file, changed, keptAt, orders, callbackUrl, webhookSecret, service, statusPage, next } = report;
  const lines = [
    changed ? `${file} is written.` : `${file} says all this already; it was not touched.`,
    ...(keptAt === null ? [] : [`The file before is kept as ${keptAt}.`]),
    orders === 'polling'
      ? 'Orders come by polling, within about two minutes.'
      : `Orders come by callbacks${callbackUrl === null ? '' : ` to ${callbackUrl}, which is registered when tillsync starts`}, and by polling.`,
    ...(webhookSecret === 'made' ? ['A secret for callbacks was made; it is kept in state.db.'] : []),
    ...(service?.started ? [`${service.unit} is running, and starts with the machine.`] : []),
    ...(statusPage === null ? [] : [`Status page: ${statusPage}`]),
    ...(next.length === 0 ? [] : ['Next:', ...next.map((step) => `  ${step}`)]),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}
