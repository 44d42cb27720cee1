import type { Config } from '../../config/config-type.ts';
import type { Replaced } from '../../config/replace-file.ts';
import { printable } from '../texts/printable.ts';
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
