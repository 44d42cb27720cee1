import { writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  chainSampleConfig,
  configurationReference,
  sampleConfig,
} from '../../config/package/configuration.ts';
import { type CommandFacts, commandTree, everyCommand } from './command-tree.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Returns the text of docs/reference.md: every key of the configuration and every command, in the program's own words.
 */
export function referenceText(program: CommandFacts): string {
  return [
    '# Reference',
    '',
    'Made by `npm run reference` from the schema of the configuration and from the command line itself.',
    '',
    '- [Configuration](#configuration)',
    '- [Commands](#commands)',
    '',
    '## Configuration',
    '',
    `One file for each company, \`/etc/tillsync/config.toml\` for the first. \`sudo tillsync config check\` names every fault of
it at once. Every key can be set from the environment, too: \`TILLSYNC_<SECTION>_<KEY>\`, such as
\`TILLSYNC_LOCAL_LISTEN=127.0.0.1:9000\`; lists and tables as JSON. Durations: \`500ms\`, \`1s\`, \`2m\`, \`1h\`, \`7d\`. What stands
under "without it" holds when a key is left out. Secrets have no keys: see [Secrets](operator.md#secrets).`,
    '',
    configurationReference(),
    '## Commands',
    '',
    `${code('--config FILE')} goes with each: the configuration of a further company. ${code('--help')} has an example of each.`,
    '',
    ...everyCommand(program)
      .filter(({ words, runs }) => words.length > 0 && runs)
      .flatMap(commandText),
  ].join('\n');
}

function commandText({ words, usage, description, options }: CommandFacts): string[] {
  return [
    `### tillsync ${words.join(' ')}`,
    '',
    `${description}. ${code(`tillsync ${words.join(' ')} ${usage}`.trim())}`,
    '',
    ...(options.length > 0
      ? [
          '| option | |',
          '|---|---|',
          ...options.map((option) => `| ${code(option.flags)} | ${cell(option.description)} |`),
          '',
        ]
      : []),
  ];
}

function code(text: string): string {
  return text === '' ? '' : `\`${text.replaceAll('|', '\\|')}\``;
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

/** Returns the text that docs/reference.md must have now. */
export function referenceNow(): string {
  return referenceText(commandTree());
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(path.join(ROOT, 'docs/reference.md'), referenceNow());
  writeFileSync(path.join(ROOT, 'config/tillsync.sample.toml'), sampleConfig());
  writeFileSync(path.join(ROOT, 'config/tillsync-hub.sample.toml'), chainSampleConfig());
}
