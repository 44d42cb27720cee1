import { CommanderError } from 'commander';
import { asTillsyncError, TillsyncError } from '../domain/errors.ts';
import type { Cli } from './cli.ts';
import { EXIT, type ExitCode, exitCodeOf } from './exit-code.ts';
import { failureDocument, tellFailure } from './failure.ts';
import { writeJson } from './output.ts';
import { createProgram } from './program.ts';

/**
 * Runs one command line (without program and script) to its end and gives its exit code; never throws. With
 * `--json` a failure, too, is one document on standard output.
 */
export async function runCli(words: readonly string[], cli: Omit<Cli, 'endWith'>): Promise<ExitCode> {
  let code: ExitCode = EXIT.done;
  const endWith = (wanted: ExitCode) => {
    code = wanted;
  };
  const wantsJson = words.includes('--json');
  try {
    // Not a copy, which would open standard input.
    const own = Object.assign(Object.create(cli) as typeof cli, { endWith });
    await createProgram(own, words[0]).parseAsync(words, { from: 'user' });
    return code;
  } catch (thrown) {
    if (thrown instanceof CommanderError) {
      if (thrown.exitCode === 0) return EXIT.done;
      // Commander has told the person already.
      const error = new TillsyncError('usage', thrown.message.replace(/^error: /, ''));
      if (wantsJson) writeJson(cli, failureDocument(error));
      return EXIT.usage;
    }
    const error = asTillsyncError(thrown);
    if (wantsJson) writeJson(cli, failureDocument(error));
    tellFailure(cli.stderr, thrown);
    return exitCodeOf(error.code);
  }
}
