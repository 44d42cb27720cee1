import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/config.ts';
import { readSecrets } from '../../../src/config/secrets.ts';
import { type ConfigFault, configError } from '../../../src/config/source.ts';
import { invoke } from '../../cli/invoke.ts';
import { Dice, rounds, SEED } from './dice.ts';
import { mutateBytes } from './mutate-bytes.ts';
import { hostileValue, write } from './mutate-json.ts';

type ConfigResult = ReturnType<typeof readConfig>;

const SAMPLE = readFileSync(path.join(import.meta.dirname, '../../../config/tillsync.sample.toml'), 'utf8')
  // All keys enabled, including those that the sample has as comments.
  .replace(/^# ?(\w+ = )/gm, '$1');
const LINES = SAMPLE.split('\n').filter((line) => /^(\w+ = |\[)/.test(line));
const KEYS = LINES.filter((line) => !line.startsWith('[')).map((line) => line.split(' = ')[0] as string);
const SECTIONS = LINES.filter((line) => line.startsWith('[')).map((line) => line.replace(/[[\]]/g, ''));
const HOSTILE_TOML: readonly string[] = [
  '-1',
  'nan',
  'inf',
  '99999999999999999999',
  '0x7fffffffffffffff',
  '""',
  '"\\u0000"',
  '"127.0.0.1:99999"',
  '"5s; rm"',
  '"-5s"',
  '"1e9d"',
  '1979-05-27T07:32:00Z',
  '[]',
  '[[[]]]',
  '{}',
  '{ a.b.c = 1 }',
  `"${'x'.repeat(100_000)}"`,
  '"* * * * * * * * *"',
  '"0 0 31 2 *"',
  '"Mars/Olympus"',
];
const PLANTED = 'planted-and-long-enough-to-be-a-secret-0123456789';

function judge(result: ConfigResult, where: string): void {
  if ('config' in result) return;
  for (const fault of result.faults) {
    expect(fault.origin !== '' && fault.found !== '' && fault.allowed !== '', where).toBe(true);
    // Only a fault of the whole file, or of a variable's name, has no key.
    if (fault.key === '') expect(isOfTheWhole(fault), `${where}: ${JSON.stringify(fault)}`).toBe(true);
  }
  const { message } = configError(result.faults);
  expect(message, where).not.toContain(PLANTED);
}

const isOfTheWhole = ({ origin, allowed }: ConfigFault) =>
  origin.startsWith('environment variable') || /TOML/.test(allowed);

describe(`a configuration that somebody broke (TILLSYNC_SEED=${SEED})`, () => {
  it('is told by its faults, each with its key, and never by a throw', () => {
    const dice = new Dice(SEED);
    for (let n = 0; n < rounds(1_500); n++) {
      const text = dice.chance(0.4) ? mutateBytes(Buffer.from(SAMPLE), dice).toString() : brokenLines(dice);
      const env = Object.fromEntries(
        Array.from({ length: dice.below(3) }, () => [
          `TILLSYNC_${dice.pick(SECTIONS)}_${dice.pick(KEYS)}`.toUpperCase(),
          dice.chance(0.5) ? write(hostileValue(dice)).slice(0, 100_000) : dice.pick(HOSTILE_TOML),
        ]),
      );
      const where = `round ${n}: ${JSON.stringify(env).slice(0, 300)}\n${text.slice(0, 1_500)}`;
      judge(readConfig({ file: 'fuzz.toml', env, text }), where);
    }
  });

  it('with a secret that strayed into it does not show it', () => {
    const dice = new Dice(SEED + 1);
    for (let n = 0; n < rounds(300); n++) {
      const name = dice.pick([
        'refresh_token',
        'secret',
        'password',
        'webhook_secret',
        'local_api_key',
        'token',
      ]);
      const lines = SAMPLE.split('\n');
      lines.splice(dice.below(lines.length), 0, `${name} = "${PLANTED}"`);
      judge(readConfig({ file: 'fuzz.toml', env: {}, text: lines.join('\n') }), `round ${n}: ${name}`);
    }
  });

  it('of secrets says which, never what', () => {
    const dice = new Dice(SEED + 2);
    const names = [
      'REFRESH_TOKEN',
      'ACCESS_TOKEN',
      'WEBHOOK_SECRET',
      'LOCAL_API_KEY',
      'ALARM_URL',
      'ALARM_TOKEN',
    ];
    for (let n = 0; n < rounds(500); n++) {
      const value = mutateBytes(Buffer.from(PLANTED), dice).toString();
      const result = readSecrets({ [`TILLSYNC_${dice.pick(names)}`]: value });
      if (!('faults' in result)) continue;
      const told = configError(result.faults).message;
      for (const part of value.match(/[\w-]{12,}/g) ?? []) expect(told, `round ${n}`).not.toContain(part);
    }
  });
});

describe(`a command line that nobody meant (TILLSYNC_SEED=${SEED})`, () => {
  const WORDS = [
    ...[
      'status',
      'order',
      'list',
      'show',
      'outbox',
      'retry',
      'drop',
      'order',
      'events',
      'ack',
      'push',
      'stock',
      'set',
    ],
    ...['product', 'quarantine', 'events', 'backup', 'bundle', 'config', 'check', 'auth', 'webhook', 'help'],
    ...[
      '--json',
      '--config',
      '/nowhere/config.toml',
      '--limit',
      '-1',
      '1e999',
      'NaN',
      '--',
      '-',
      '',
      '__proto__',
    ],
    ...[
      '--state',
      '--from',
      '2026-02-30',
      '--to',
      '--',
      '--branch',
      '--full',
      '--format',
      'csv',
      'x'.repeat(50_000),
    ],
  ];

  it('ends with a code that is documented, and no trace of the inside', async () => {
    const dice = new Dice(SEED + 3);
    // Commands write their files into the working directory, so it must be a temporary one.
    process.chdir(mkdtempSync(path.join(tmpdir(), 'tillsync-fuzz-')));
    for (let n = 0; n < rounds(150); n++) {
      const words = Array.from({ length: 1 + dice.below(6) }, () => dice.pick(WORDS));
      const { code, stderr } = await invoke(words, { env: { TILLSYNC_CONFIG: '/nowhere/config.toml' } });
      const where = `round ${n}: ${JSON.stringify(words.map((word) => word.slice(0, 60)))} → ${code}\n${stderr.slice(0, 500)}`;
      expect([0, 1, 2, 3, 4], where).toContain(code);
      expect(stderr, where).not.toMatch(/\n\s+at .+:\d+:\d+/);
      expect(stderr, where).not.toMatch(/TypeError|RangeError|ReferenceError/);
    }
  });
});

/** Returns the sample with values and names exchanged, and lines doubled, moved or left out. */
function brokenLines(dice: Dice): string {
  const lines = [...LINES];
  for (let blows = 1 + dice.below(4); blows > 0; blows--) {
    const at = dice.below(lines.length);
    const line = lines[at] as string;
    const [key] = line.split(' = ');
    switch (dice.below(5)) {
      case 0:
        lines.splice(at, 1);
        break;
      case 1:
        lines.splice(dice.below(lines.length), 0, line);
        break;
      case 2:
        lines[at] = line.startsWith('[')
          ? `[${dice.pick(['__proto__', 'constructor', '"a.b"', 'x.y'])}]`
          : `__proto__ = 1`;
        break;
      default:
        if (!line.startsWith('[')) lines[at] = `${key} = ${dice.chance(0.7) ? dice.pick(HOSTILE_TOML) : '.'}`;
    }
  }
  return lines.join('\n');
}
