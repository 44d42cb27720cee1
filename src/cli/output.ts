import type { Cli } from './cli.ts';
import { printableJson } from './texts/printable.ts';

/** The one JSON document of a command. */
export function writeJson(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document, null, 2))}\n`);
}

/** One of many documents, a line each. */
export function writeJsonLine(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document))}\n`);
}
