import { CHAIN_SECTIONS } from '../../src/config/roles.ts';
import { allowedOf, type ConfigKey, KEYS, SECTIONS } from '../../src/config/schema.ts';
import { isTable } from '../../src/config/values.ts';

/** Longest line of a comment in the sample, in characters. */
const COLUMNS = 118;

const HEADER = `# tillsync: every setting of one company, with its default.
#
# \`tillsync init\` writes /etc/tillsync/config.toml with your answers. Settings that are not in that file have the
# defaults shown here. To change one, run: tillsync config set KEY VALUE
# Or edit the file, then run:  tillsync config apply
#
# SET marks what init asks for.
# Check the file:     tillsync config check
# Show all settings:  tillsync config show --all
# Environment:        TILLSYNC_<SECTION>_<KEY> overrides a key (example: TILLSYNC_LOCAL_LISTEN=127.0.0.1:9000);
#                     lists and tables as JSON: TILLSYNC_BRANCHES='[{"external_id":"B1"}]'
# Durations:          "500ms", "1s", "2m", "1h", "7d"
#
# Never put secrets in this file. Set the tokens with
#     tillsync auth set < file-with-the-refresh-token
# Other secrets are systemd credentials: refresh-token, access-token, webhook-secret, local-api-key, alarm-url,
# alarm-token, heartbeat-url, backup-passphrase, hook-NAME for each hook that signs, and hook-NAME-url for a hook
# with a secret address.`;

const CHAIN_HEADER = `# tillsync: what a company with a tillsync in each branch adds to the configuration of its machines.
#
# [hub] goes into the file of the machine that talks to the platform, beside the keys of config.sample.toml.
# [link] is written by \`tillsync init --join INVITATION\` on the machine of a branch.`;

/** Returns the commented sample file of a single store, which has every key with its default. */
export function sampleConfig(): string {
  return sampleOf(
    HEADER,
    KEYS.filter(({ section }) => !CHAIN_SECTIONS.has(section)),
  );
}

/** Returns the commented sample file of the sections that only a hub or a branch has. */
export function chainSampleConfig(): string {
  return sampleOf(
    CHAIN_HEADER,
    KEYS.filter(({ section }) => CHAIN_SECTIONS.has(section)),
  );
}

function sampleOf(header: string, keys: readonly ConfigKey[]): string {
  const blocks = [[header]];
  let current = '';
  for (const { path, section, name, about, example, isAsked, schema } of keys) {
    if (section !== current && section !== '') {
      blocks.push([...comment(SECTIONS.get(section) ?? ''), `[${section}]`]);
    }
    current = section;
    const words = comment(isAsked ? `SET: ${about.charAt(0).toLowerCase()}${about.slice(1)}` : about);
    const value = example ?? schema.def.defaultValue;
    const [table = {}] = Array.isArray(value) ? value : [value];
    const list = [`[[${name}]]`, ...linesOf(table)];
    if (section === '') blocks.push([...words, ...(isAsked ? list : list.map((line) => `# ${line}`))]);
    else if (isTable(value))
      blocks.push([...words, `[${path}]`, ...linesOf(value).map((line) => `# ${line}`)]);
    else blocks.at(-1)?.push(...words, ...linesOf({ [name]: value }));
  }
  return `${blocks.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}

/** Returns the lines of a table. Its values can be written as JSON, because TOML has the same syntax for them. */
function linesOf(table: Record<string, unknown>): string[] {
  return Object.entries(table).map(
    ([key, value]) => `${key} = ${JSON.stringify(value).replaceAll('","', '", "')}`,
  );
}

function comment(text: string): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter((each) => each !== '')) {
    const last = lines.at(-1);
    if (last === undefined || last.length + word.length >= COLUMNS) lines.push(`# ${word}`);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}

/** Returns all keys as Markdown with one table per section, for use below a second-level heading. */
export function configurationReference(): string {
  const sections = [...new Set(KEYS.map((key) => key.section || key.name))];
  const parts = sections.map((section) => {
    const keys = KEYS.filter((key) => (key.section || key.name) === section);
    const about = SECTIONS.get(section) ?? '';
    const rows = keys.map((key) => {
      const cells = [code(key.name), allowedOf(key), defaultText(key), key.about, code(key.variable)];
      return `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('<', '&lt;')).join(' | ')} |`;
    });
    return [
      SECTIONS.has(section) ? `### [${section}]` : `### [[${section}]]`,
      ...(about === '' ? [] : ['', about]),
      '',
      '| key | allowed | without it | what it does | in the environment |',
      '|---|---|---|---|---|',
      ...rows,
    ].join('\n');
  });
  return `${parts.join('\n\n')}\n`;
}

function defaultText({ default: inWords, schema }: ConfigKey): string {
  if (inWords !== undefined) return inWords;
  const value = schema.def.defaultValue;
  return value === undefined ? 'none: required' : code(isTable(value) ? '{}' : JSON.stringify(value));
}

function code(text: string): string {
  return `\`${text}\``;
}
