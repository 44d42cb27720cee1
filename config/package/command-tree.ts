import type { Command } from 'commander';
import { OF_CHAIN } from '../../src/cli/command.ts';
import { createProgram } from '../../src/cli/program.ts';
import { systemClock, systemRandom } from '../../src/core/system-clock.ts';

/** One command as the man page and the completion show it. */
export interface CommandFacts {
  /** Words that call the command, without `tillsync`; empty for the program itself. */
  words: string[];
  usage: string;
  description: string;
  options: { flags: string; long: string; takesValue: boolean; description: string; isOfChain: boolean }[];
  commands: CommandFacts[];
  /** Whether the command does something itself. A group only contains commands, and has no options of its own. */
  runs: boolean;
  /** Whether only a hub or a branch needs the command, so that the help and the completion of a single store hide it. */
  isOfChain: boolean;
}

/** Returns the commands as the program itself defines them, so that their documentation is never outdated. */
export function commandTree(): CommandFacts {
  const silent = { write: () => true };
  const program = createProgram({
    env: {},
    stdin: { async *[Symbol.asyncIterator]() {} },
    stdout: silent,
    stderr: silent,
    clock: systemClock,
    random: systemRandom,
    who: 'cli nobody',
    signal: new AbortController().signal,
    endWith() {},
  });
  return factsOf(program, []);
}

function factsOf(command: Command, words: string[]): CommandFacts {
  return {
    words,
    usage: command.usage(),
    description: command.description(),
    options: command.options
      .filter((option) => !option.hidden)
      .map(({ flags, long, required, optional, description, helpGroupHeading }) => ({
        flags,
        long: long ?? flags,
        takesValue: required || optional,
        description,
        isOfChain: helpGroupHeading === OF_CHAIN,
      })),
    commands: command.commands.map((inner) => factsOf(inner, [...words, inner.name()])),
    runs: command.commands.length === 0 || command.options.length > 0,
    isOfChain: command.helpGroup() === OF_CHAIN,
  };
}

/** Returns the command and all commands below it. */
export function everyCommand(root: CommandFacts): CommandFacts[] {
  return [root, ...root.commands.flatMap(everyCommand)];
}
