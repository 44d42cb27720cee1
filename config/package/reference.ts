import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type CommandFacts, commandTree, everyCommand } from './command-tree.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/** docs/reference.md: every key of the sample configuration and every command, from the program's own words. */
export function referenceText(sample: string, program: CommandFacts): string {
  return [
    '# Reference',
    '',
    'Made by `npm run reference` from the sample configuration and from the command line itself.',
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
    ...sectionsOf(sample),
    '## Commands',
    '',
    `${code('--config FILE')} goes with each: the configuration of a further company. ${code('--help')} has an example of each.`,
    '',
    ...everyCommand(program)
      .filter(({ words, commands }) => words.length > 0 && commands.length === 0)
      .flatMap(commandText),
  ].join('\n');
}

/** The sample explains each key in the comment above it; a comment apart belongs to the section. */
function sectionsOf(sample: string): string[] {
  const out: string[] = [];
  let comment: string[] = [];
  let hasTable = false;
  for (const line of sample.split('\n')) {
    const section = /^(\[+[\w.]+\]+)$/.exec(line)?.[1];
    const [, key, value = ''] = /^#? ?([\w.]+) = (.*)$/.exec(line) ?? [];
    if (section !== undefined) {
      if (hasTable) out.push('');
      out.push(`### ${section}`, '');
      if (comment.length > 0 && out.length > 2) out.push(comment.join(' '), '');
      hasTable = false;
      comment = [];
    } else if (key !== undefined && out.length > 0) {
      if (!hasTable) out.push('| key | without it | what it does |', '|---|---|---|');
      hasTable = true;
      out.push(`| ${code(key)} | ${code(value.replace(/\s+#.*$/, ''))} | ${cell(comment.join(' '))} |`);
      comment = [];
    } else if (line.startsWith('#'))
      comment.push(
        line
          .replace(/^#\s?/, '')
          .replace(/^SET([^:]*): /, 'To be set$1: ')
          .trim(),
      );
    else comment = [];
  }
  return [...out, ''];
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

/** The reference as it has to stand in docs/. */
export function referenceNow(): string {
  return referenceText(readFileSync(path.join(ROOT, 'config/tillsync.sample.toml'), 'utf8'), commandTree());
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(path.join(ROOT, 'docs/reference.md'), referenceNow());
}
