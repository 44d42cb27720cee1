import type { Cli } from '../cli.ts';
import { writeJson } from '../output.ts';
import { printable, printableLines } from './printable.ts';
import { fields } from './table.ts';

export interface ReceivedShown {
  /** Print what was received alone. */
  payload?: boolean;
  json?: boolean;
}

/**
 * Writes one thing that was received: what is known of it and its payload, or with `payload` its bytes alone,
 * exactly as they came. In JSON a payload that is no text is `payloadBase64`.
 */
export function writeReceived(
  cli: Cli,
  options: ReceivedShown,
  { payload, ...known }: { payload: string | Uint8Array },
  rows: Parameters<typeof fields>[0],
): void {
  if (options.json) {
    const shown =
      typeof payload === 'string' ? { payload } : { payloadBase64: Buffer.from(payload).toString('base64') };
    writeJson(cli, { ...known, ...shown });
  } else if (options.payload) {
    writePayload(cli, payload);
  } else {
    cli.stdout.write(fields(rows));
    cli.stdout.write(`\n${printable(Buffer.from(payload).toString('utf8'))}\n`);
  }
}

/** What was received, exactly as it came; on a terminal, which it could steer, with that made visible. */
export function writePayload({ stdout }: Pick<Cli, 'stdout'>, payload: string | Uint8Array): void {
  if (stdout.isTTY) stdout.write(`${printableLines(Buffer.from(payload).toString('utf8').trimEnd())}\n`);
  else stdout.write(payload);
}
