import { Command } from 'commander';
import { TillsyncError } from '../domain/errors.ts';

/** What of the command line counts for every command. */
export interface GlobalOptions {
  config?: string;
}

/** For commands that give a result: `--json`. */
export interface JsonOption {
  json?: boolean;
}

/** A command whose help ends with examples. */
export function newCommand(name: string, description: string, examples: readonly string[]): Command {
  const lines = examples.map((example) => `  $ tillsync ${example}`);
  return new Command(name)
    .description(description)
    .addHelpText('after', `\nExample${lines.length > 1 ? 's' : ''}:\n${lines.join('\n')}`);
}

/** The same with `--json`. */
export function newResultCommand(name: string, description: string, examples: readonly string[]): Command {
  return newCommand(name, description, examples).option(
    '--json',
    'print one JSON document on standard output',
  );
}

/** A whole number from an option, at least `min`; throws `usage` for anything else. */
export function wholeNumberOption(name: string, min: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= min) return value;
    throw new TillsyncError('usage', `${name}: found "${text}"; allowed: a whole number from ${min}.`);
  };
}
